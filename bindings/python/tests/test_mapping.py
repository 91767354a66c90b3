"""Tables as dicts, pickled, and as columns of pandas and pyarrow."""

import multiprocessing
import os
import pickle
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import farsight

TICK = np.dtype([("price", "<f8"), ("size", "<u4"), ("venue", "S4")])
KEYS = {
    "uint64": np.r_[np.arange(9_000, dtype=np.uint64) * np.uint64(3), np.uint64(2**64 - 1)],
    "int64": np.r_[np.int64(-(2**63)), np.arange(-4_500, 4_500, dtype=np.int64)],
    "float64": np.r_[-np.inf, np.arange(-4_500, 4_500) / 8, np.inf],
    "S8": np.array(sorted(f"{number:05}".encode() for number in range(9_000)), "S8"),
}


@pytest.mark.parametrize("key_type", KEYS)
def test_iteration_is_in_order_and_over_all_pages(new_table: Any, key_type: str) -> None:
    keys = KEYS[key_type]
    table = new_table(np.int64, key=key_type)
    assert list(table) == [] and list(table.items()) == []
    table.put_many(keys, np.arange(len(keys)))
    assert list(table) == list(table.keys()) == list(keys)
    assert list(table.values()) == list(range(len(keys)))
    assert list(table.items()) == list(zip(keys, range(len(keys)), strict=True))


def test_iteration_ends_at_a_key_that_is_no_number(new_table: Any) -> None:
    table = new_table(np.int64, key=np.float64)
    keys = np.r_[-np.nan, np.arange(5_000.0), np.nan]
    table.put_many(keys, np.arange(len(keys)))
    for found in (islice(table, 6_000), (key for key, _ in islice(table.items(), 6_000))):
        assert np.array(list(found)).tobytes() == keys.tobytes()


def test_an_iterator_keeps_zero_behind_a_removed_negative_zero(new_table: Any) -> None:
    table = new_table(np.int64, key=np.float64)
    keys = np.r_[np.arange(-4_095.0, 0), -0.0, 0.0, 1.0]
    table.put_many(keys, np.arange(len(keys)))
    for iterator in (iter(table), (key for key, _ in table.items())):
        assert np.signbit(list(islice(iterator, 4_096))[-1])
        table.remove(-0.0)
        assert list(iterator) == [0.0, 1.0]
        table.put(-0.0, 0)


def test_an_iterator_goes_on_where_a_removed_key_was(new_table: Any) -> None:
    table = new_table(np.int64)
    keys = np.arange(10_000)
    table.load(keys, keys)
    iterator = iter(table)
    assert [next(iterator) for _ in range(4_096)] == list(range(4_096))
    table.remove_many(np.arange(4_000, 4_200))
    assert list(iterator) == list(range(4_200, 10_000))


def test_slices_are_ranges_of_keys(new_table: Any) -> None:
    table = new_table(8)
    table[5], table[7], table[9] = b"five....", b"seven...", b"nine...."
    keys, values = table[6:9]
    assert keys.tolist() == [7] and values[0].tobytes() == b"seven..."
    assert table[:][0].tolist() == [5, 7, 9] and table[8:][0].tolist() == [9]
    assert list(table.items()) == [(5, b"five...."), (7, b"seven..."), (9, b"nine....")]
    assert 7 in table and table.get(6) is None and table.get(6, "none") == "none"
    with pytest.raises(ValueError, match="step"):
        table[::2]


def _sum_of(table: farsight.Table) -> int:
    """What another process finds."""
    return int(table.scan()[1].sum())


def test_tables_are_pickled_by_address_and_name(new_table: Any) -> None:
    table = new_table(np.int64)
    table.put_many(np.arange(100), np.arange(100))
    copy = pickle.loads(pickle.dumps(table))
    assert copy is not table and (copy.name, copy.dtype, copy[7]) == (table.name, table.dtype, 7)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_sum_of, [table, table]) == [4_950, 4_950]


def test_a_forked_child_is_told_to_connect_again(client: farsight.Client, new_table: Any) -> None:
    table = new_table(np.int64)
    table[1] = 1
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            table.get(1)
            said = "no error"
        except farsight.Error as error:
            said = str(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(reading, 4_096).decode()
    assert "connect again in the child" in said
    assert table[1] == 1


def test_frames_of_pandas(new_table: Any) -> None:
    table = new_table(TICK)
    frame = pd.DataFrame(
        {"price": [1.5, 2.5], "size": [3, 4], "venue": [b"XETR", b"XNAS"]}, index=pd.Index([10, 20], name="key")
    )
    table.put_frame(frame)
    assert table[20]["price"] == 2.5 and table[10]["venue"] == b"XETR"
    read = table.to_pandas()
    assert read.index.tolist() == [10, 20] and read["size"].tolist() == [3, 4]
    table.put_frame(read)
    with pytest.raises(TypeError, match="'size'"):
        table.put_frame(frame.assign(size=[0.5, 1]))
    with pytest.raises(TypeError, match="'size' of int32"):
        table.put_frame(frame.assign(size=np.array([-1, 1], np.int32)))
    with pytest.raises(ValueError, match="venue"):
        table.put_frame(frame.drop(columns="venue"))
    with pytest.raises(KeyError, match="time"):
        table.put_frame(frame, key="time")


def test_tables_of_arrow(new_table: Any) -> None:
    table = new_table(np.float64, key="int64")
    table.put_frame(pa.table({"time": [-5, 5], "value": [0.25, 0.5]}), key="time")
    read = table.to_arrow(-5, 100, limit=9)
    assert read.column_names == ["key", "value"]
    assert read["key"].to_pylist() == [-5, 5] and read["value"].to_pylist() == [0.25, 0.5]
    raw = new_table(8)
    raw[1] = b"8 bytes."
    assert raw.to_arrow()["value"].to_pylist() == [b"8 bytes."]
    with pytest.raises(ValueError, match="one column"):
        table.put_frame(pa.table({"key": [1], "a": [1.0], "b": [2.0]}))
