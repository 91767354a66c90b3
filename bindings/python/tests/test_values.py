"""Tables whose values have any length: bytes and texts."""

from __future__ import annotations

import multiprocessing
import pickle
import random
from typing import Any

import farsight
import numpy as np
import pytest

from random_writes import random_writes


def test_bytes_and_texts_of_any_length_come_back(new_table: Any) -> None:
    for kind, values in [
        (bytes, [b"", b"\0", b"eight...", b"\0" * 100, bytes(range(256)) * 125]),
        (str, ["", "\0", "grüße", "長い" * 5_000]),
    ]:
        table = new_table(kind)
        assert isinstance(table, farsight.ValuesTable) and table.value is kind
        for key, value in enumerate(values):
            table[key] = value
            assert table[key] == value and type(table[key]) is kind and key in table
        assert table.multi_get(np.arange(len(values) + 1)) == [*values, None]
        assert list(table.items()) == list(enumerate(values)) and list(table.values()) == values


def test_items_are_fetched_as_they_are_wanted(new_table: Any) -> None:
    table = new_table(bytes)
    for key in range(30):
        table[key] = b"old" + bytes(100_000)
    items = table.items()
    assert next(items) == (0, b"old" + bytes(100_000))
    # Thirty values are more than a page has.
    table[29] = b"new"
    assert list(items)[-1] == (29, b"new")


def test_absent_keys_are_none(new_table: Any) -> None:
    table = new_table(str)
    assert table.get(1) is None and table.get(1, "none") == "none" and 1 not in table
    with pytest.raises(KeyError):
        table[1]
    with pytest.raises(KeyError):
        del table[1]
    assert table.multi_get([]) == [] and table.multi_get([1, 2]) == [None, None]
    values, versions = table.multi_get([1], versions=True)
    assert values == [None] and versions.tolist() == [0]
    # An empty value is not an absent one.
    table[1] = ""
    assert table.get(1, "none") == "" and table.multi_get([1, 2]) == ["", None]


def test_scans_and_slices_are_in_order(new_table: Any) -> None:
    table = new_table(bytes, np.int64)
    keys = np.arange(-5_000, 5_000)
    expected = [str(key).encode() * (key % 7) for key in keys]
    table.put_many(keys, expected)
    found, values = table.scan()
    assert found.tolist() == keys.tolist() and values == expected
    assert table[-3:2][1] == expected[4_997:5_002]
    assert table.scan(limit=3, reverse=True)[0].tolist() == [4_999, 4_998, 4_997]
    assert list(table) == keys.tolist() and list(table.values()) == expected
    assert table.scan_keys(-3, 2).tolist() == [-3, -2, -1, 0, 1] and table.count() == 10_000
    assert table.scan_keys(limit=2, reverse=True).tolist() == [4_999, 4_998]
    assert table.count(-3, 2) == 5 and table.count(5, 5) == 0 and table.count(4_990) == 10
    found, values = table.floor([-6_000, 7, 9_000])
    assert values == [None, expected[5_007], expected[-1]] and found[1:].tolist() == [7, 4_999]
    assert table.higher([4_999, 4_998])[1] == [None, expected[-1]]


def test_random_writes_agree_with_a_dict(new_table: Any) -> None:
    table, chance = new_table(bytes), random.Random(7)
    lengths = [0, 3, 8, 200, 5_000]
    model = random_writes(
        table, chance, 2_000, lambda: chance.randrange(50), lambda: chance.randbytes(chance.choice(lengths))
    )
    assert dict(table.items()) == model


def test_many_conditional_writes_have_masks_and_lists(new_table: Any) -> None:
    table = new_table(str)
    assert table.insert_many([1, 2, 1], ["one", "two", "again"]).tolist() == [True, True, False]
    assert table.update_many([1, 3], ["eins", "drei"]).tolist() == [True, False]
    assert table.swap_many([1, 3, 3], ["uno", "tres", "trois"]) == ["eins", None, "tres"]
    done = table.compare_and_set_value_many([1, 2, 9], ["uno", "other", "x"], ["a", "b", "c"])
    assert done.tolist() == [True, False, False]
    versions = table.multi_get([1, 2], versions=True)[1]
    assert table.compare_and_set_many([1, 2, 9], [*versions.tolist(), 5], ["A", "B", "C"]).tolist() == [True, True, False]
    assert table.remove_if_many([1, 2], [int(versions[0]), table.version(2)]).tolist() == [False, True]
    assert dict(table.items()) == {1: "A", 3: "trois"}
    assert table.remove_many([1, 2, 3]).tolist() == [True, False, True]


def test_integers_are_added_to_and_others_refused(new_table: Any) -> None:
    table = new_table(bytes)
    assert [table.fetch_add(1, addend) for addend in (5, -7, 0)] == [0, 5, -2]
    assert table.fetch_add_many([1, 2, 2], [1, 10, 1]).tolist() == [-2, 0, 10]
    table[3] = b"no integer"
    with pytest.raises(farsight.RefusedError, match="NotInteger|integer"):
        table.fetch_add(3, 1)
    assert table[3] == b"no integer"
    with pytest.raises(TypeError, match="str"):
        new_table(str).fetch_add(1, 1)


def test_a_load_shows_all_pairs(new_table: Any) -> None:
    table = new_table(str)
    assert table.load(np.arange(3_000), [f"value {key}" for key in range(3_000)]) == 3_000
    assert table[2_999] == "value 2999"
    with pytest.raises(farsight.LoadError, match="pairs"):
        table.load([1], ["again"])
    with pytest.raises(farsight.LoadError, match="ascending"):
        new_table(str).load([2, 1], ["a", "b"])


def test_wrong_values_are_told_what_is_expected(client: farsight.Client, new_table: Any) -> None:
    texts, raw = new_table(str), new_table(bytes, value_bytes_max=100)
    with pytest.raises(TypeError, match="the value is bytes, the table holds str"):
        texts[1] = b"bytes"
    with pytest.raises(TypeError, match="one of the values is int, the table holds bytes"):
        raw.put_many([1], [7])
    with pytest.raises(TypeError, match="in a list"):
        raw.put_many([1], b"x")
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        raw.put_many([1, 2], [b"x"])
    with pytest.raises(ValueError, match="up to 100 B.*101 B"):
        raw[1] = b"x" * 101
    raw[1] = bytearray(b"x" * 100)
    assert raw[1] == b"x" * 100 and raw.value_bytes_max == 100
    with pytest.raises(UnicodeEncodeError):
        texts[1] = "\ud800"
    with pytest.raises(TypeError, match="value_bytes_max is for bytes and str"):
        client.create_table("fixed", 8, value_bytes_max=9)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="at least 1 B"):
        client.create_table("none", bytes, value_bytes_max=0)


def test_a_table_is_opened_as_it_was_made(client: farsight.Client, new_table: Any) -> None:
    texts, raw, fixed = new_table(str), new_table(bytes), new_table(8)
    texts[1], raw[1] = "grüße", b"\xff"
    assert client.table(texts.name)[1] == "grüße" and client.table(raw.name)[1] == b"\xff"
    assert client.table(texts.name, bytes)[1] == "grüße".encode()
    with pytest.raises(UnicodeDecodeError):
        client.table(raw.name, str).get(1)
    with pytest.raises(TypeError, match="open it with bytes or str"):
        client.table(raw.name, 8)
    with pytest.raises(TypeError, match="values of 8 B each"):
        client.table(fixed.name, bytes)
    listed = {info.name: info for info in client.tables()}
    assert listed[texts.name][2:] == (1 << 24, "str", True) and listed[fixed.name].any_length is False
    assert repr(texts) == f"farsight.ValuesTable({texts.name!r}, key=uint64, value=str)"


def _texts_of(table: farsight.ValuesTable[str]) -> list[str]:
    """What another process finds."""
    return table.scan()[1]


def test_tables_of_values_are_pickled(new_table: Any) -> None:
    table = new_table(str)
    table.put_many([1, 2], ["one", "two"])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(_texts_of, [table]) == [["one", "two"]]
    copy = pickle.loads(pickle.dumps(table))
    assert copy is not table and copy[2] == "two"


def test_frames_have_a_column_of_values(new_table: Any) -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    table = new_table(str)
    table.put_frame(pandas.DataFrame({"id": [3, 1], "text": ["c", "a"]}), key="id")
    table.put_frame(pyarrow.table({"key": [2], "value": ["b"]}))
    frame = table.to_pandas()
    assert frame.index.tolist() == [1, 2, 3] and frame["value"].tolist() == ["a", "b", "c"]
    assert table.to_arrow(2).to_pydict() == {"key": [2, 3], "value": ["b", "c"]}
