"""All pairs of a table, whether or not its keys have an order, and values that a process keeps."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import farsight

#: More than a page has.
PAIRS = 9_000
#: Types of keys, and the key of a number.
KEYS: dict[str, tuple[str, Any, Callable[[int], Any]]] = {
    "uint64": ("key", np.uint64, lambda number: number << 40 | number),
    "int64": ("key", np.int64, lambda number: (number - PAIRS // 2) * 3),
    "float64": ("key", np.float64, lambda number: (number - PAIRS // 2) / 8),
    "S8": ("key", "S8", lambda number: b"k%07d" % number),
    "bytes": ("keys", bytes, lambda number: b"\xff" * (number % 40) + b"%d" % number),
    "str": ("keys", str, lambda number: "ü" * (number % 20) + str(number)),
}
#: Lengths of values around those at which they go otherwise: a page's end, a message, several.
LENGTHS = [0, 1, 8, 65_400, 65_504, 65_505, 70_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20]


def chance() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}", file=sys.stderr)
    return random.Random(seed)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("value", [np.uint64, bytes])
def test_a_walk_over_a_table_without_order(client: farsight.Client, kind: str, value: Any) -> None:
    name, key, key_of = KEYS[kind]
    table: Any = client.create_table(
        f"walked_{kind}_{value.__name__}", value, engine="flexkv", memory_bytes=32 << 20, **{name: key}
    )
    assert list(table.pairs()) == []
    keys = [key_of(number) for number in range(PAIRS)]
    stored = [number if value is np.uint64 else b"%d" % number for number in range(PAIRS)]
    table.put_many(keys, stored)
    dropped = chance().sample(range(PAIRS), 500)
    table.remove_many([keys[number] for number in dropped])
    found = list(table.pairs())
    gone = set(dropped)
    wanted = {keys[number]: stored[number] for number in range(PAIRS) if number not in gone}
    assert len(found) == len(wanted), "no key comes twice"
    assert dict(found) == wanted
    walk = table.pairs()
    first = next(walk)
    assert first == found[0]
    assert table[first[0]] == first[1], "other calls go on beside a walk"
    client.drop_table(table.name)


@pytest.mark.parametrize("engine", ["xstore", "rolex"])
def test_a_walk_in_the_order_of_keys(client: farsight.Client, engine: str) -> None:
    table = client.create_table(f"ordered_{engine}", np.int64, np.int64, engine=engine)
    keys = np.arange(-PAIRS // 2, PAIRS // 2)
    table.put_many(keys, keys * 2)
    assert list(table.pairs()) == list(zip(keys, keys * 2, strict=True))


def test_a_walk_over_long_values(client: farsight.Client) -> None:
    table = client.create_table("long_walked", bytes)
    drawn = chance()
    wanted = {number: drawn.randbytes(length) for number, length in enumerate(LENGTHS)}
    table.put_many(list(wanted), list(wanted.values()))
    assert list(table.pairs()) == list(wanted.items())


def test_swaps_of_long_values(client: farsight.Client) -> None:
    table = client.create_table("long_swapped", bytes)
    drawn = chance()
    model: dict[int, bytes] = {}
    for _ in range(60):
        keys = drawn.sample(range(6), drawn.randrange(1, 5))
        values = [drawn.randbytes(drawn.choice(LENGTHS)) for _ in keys]
        assert table.swap_many(keys, values) == [model.get(key) for key in keys]
        model.update(zip(keys, values, strict=True))
        key, value = drawn.randrange(6), drawn.randbytes(drawn.choice(LENGTHS))
        if (expected := model.get(key)) is not None:
            other = expected[:-1] + bytes([expected[-1] ^ 1]) if expected else b"other"
            assert not table.compare_and_set_value(key, other, value)
            assert table.compare_and_set_value(key, expected, value)
            model[key] = value
    assert dict(table.pairs()) == model


def test_values_that_a_process_keeps(client: farsight.Client) -> None:
    table: Any = client.create_table("kept", str, keys=str)
    assert table.set_value_cache(1 << 20, reads_a_write=0)
    with farsight.connect(client.url) as second:
        other: Any = second.table("kept", keys=str)
        for turn in range(20):
            other["ada"] = str(turn)
            # The second and third may be answered by what was kept: none is stale.
            assert [table["ada"] for _ in range(3)] == [str(turn)] * 3
    assert table.set_value_cache(0)
    ordered = client.create_table("not_kept", np.uint64)
    assert not ordered.set_value_cache(1 << 20), "XStore keeps no values"


@pytest.mark.parametrize("reads", ["addresses", "values", "none"])
def test_reads_that_compute_nodes_may_help_with(client: farsight.Client, reads: Any) -> None:
    table: Any = client.create_table(f"helped_{reads}", bytes, keys=str)
    table.set_reads_by_others(reads)
    table["ada"] = b"lovelace"
    assert table["ada"] == b"lovelace" and "grace" not in table, "nobody serves: it reads by itself"
    with pytest.raises(ValueError, match="'addresses'.*nothing"):
        table.set_reads_by_others("nothing")
