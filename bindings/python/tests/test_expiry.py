"""Tables whose pairs have deadlines."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import farsight
import numpy as np
import pytest


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A table's name that no other test has."""
    return request.node.name[-40:]


def test_pairs_stay_as_long_as_is_said(client: farsight.Client, name: str) -> None:
    table = client.create_table(name, str, ttl=timedelta(days=1))
    table.put(1, "a day")
    table.put(2, "an hour", ttl=3600)
    table.put(3, "for ever", ttl=math.inf)
    table.put(4, "at once", ttl=0)
    assert table.multi_get([1, 2, 3, 4]) == ["a day", "an hour", "for ever", None]
    assert list(table) == [1, 2, 3] and 4 not in table
    left = [table.ttl(key) for key in range(1, 5)]
    assert 86_000 < left[0] <= 86_400 and 3_500 < left[1] <= 3_600 and left[2:] == [math.inf, None]
    assert table.insert(4, "again") and table.get(4) == "again"
    assert table.set_ttl(4, 0) and not table.set_ttl(4, 5) and table.get(4) is None
    assert table.set_ttl(1, math.inf) and table.ttl(1) == math.inf and table[1] == "a day"


def test_many_writes_share_a_lifetime(client: farsight.Client, name: str) -> None:
    table = client.create_table(name, bytes, ttl=math.inf)
    keys = np.arange(3_000)
    table.put_many(keys, [b"gone"] * len(keys), ttl=0)
    assert table.scan()[1] == [] and table.floor([2_999])[1] == [None]
    assert table.insert_many(keys[::2], [b"there"] * 1_500, ttl=60).all()
    assert table.scan()[0].tolist() == keys[::2].tolist()
    assert table.update_many(keys, [b"new"] * 3_000).tolist() == [True, False] * 1_500
    assert table.ttl(0) == math.inf, "an update says anew how long its pair stays"


def test_a_table_has_the_memory_that_it_was_made_with(client: farsight.Client, name: str) -> None:
    small = client.create_table(name, np.uint64, memory_bytes=2 << 20)
    with pytest.raises(farsight.RefusedError, match="RegionFull|region|full"):
        small.put_many(np.arange(100_000), np.arange(100_000))
    with pytest.raises(farsight.TableError, match="this node gives"):
        client.create_table(f"{name}_big", np.uint64, memory_bytes=1 << 50)


def test_what_cannot_be_is_refused(client: farsight.Client, name: str) -> None:
    plain = client.create_table(name, str)
    with pytest.raises(farsight.WriteError, match="have no deadlines"):
        plain.put(1, "x", ttl=5)
    with pytest.raises(TypeError, match="ttl is for bytes and str"):
        client.create_table(f"{name}_f", np.float64, ttl=5)  # type: ignore[call-overload]
    for wrong in [-1, math.nan]:
        with pytest.raises(ValueError, match="not negative"):
            plain.put(1, "x", ttl=wrong)
    with pytest.raises(ValueError, match="1 ms at least"):
        client.create_table(f"{name}_z", str, ttl=0)
    with pytest.raises(farsight.TableError, match="that end after"):
        client.create_table(name, str, ttl=5)
    assert plain.ttl(1) is None
    plain[1] = "stays"
    assert plain.ttl(1) == math.inf
    unknown: Any = plain
    with pytest.raises(TypeError):
        unknown.put(1, "x", 5)
