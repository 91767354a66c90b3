"""What arrays a table takes, and what its refusals say."""

from typing import Any

import numpy as np
import pytest

import farsight


@pytest.mark.parametrize("dtype", ["u1", "i2", ">u4", "<i8", ">u8", "bool"])
def test_integers_of_any_width_and_order_are_keys(new_table: Any, dtype: str) -> None:
    table = new_table(np.uint64)
    keys = np.array([0, 1], dtype)
    table.put_many(keys, keys)
    assert table.multi_get([0, 1, 256])[1].tolist() == [True, True, False]


def test_arrays_need_not_be_contiguous_or_aligned(new_table: Any) -> None:
    table = new_table(np.float64)
    keys, values = np.arange(20, dtype=np.uint64)[::2], np.arange(20.0)[::-2]
    table.put_many(keys, values)
    assert table.scan()[1].tolist() == values.tolist()
    shifted = np.zeros(5, [("pad", "u1"), ("key", "u8")])
    shifted["key"] = keys[:5]
    assert not shifted["key"].flags.aligned
    assert table.multi_get(shifted["key"])[1].all()


def test_large_integers_in_lists_stay_exact(new_table: Any) -> None:
    table = new_table(np.uint64)
    keys = [0, 2**53 + 1, 2**64 - 1]
    table.put_many(keys, keys)
    assert table.scan()[0].tolist() == keys
    assert table.get(np.uint64(2**64 - 1)) == 2**64 - 1


def test_numbers_side_by_side_are_stored_as_they_are(new_table: Any) -> None:
    table = new_table(np.float64)
    table.put_many([1, 2, 3, 4], [0.5, 2**53, -1, float("inf")])
    assert table.scan()[1].tolist() == [0.5, 2.0**53, -1.0, float("inf")]
    table.put_many(np.ma.array([1, 2]), np.ma.array([7.5, 8.5]))
    assert table.multi_get([1, 2])[0].tolist() == [7.5, 8.5]


def test_values_may_be_stored_in_another_order_of_bytes(new_table: Any, client: farsight.Client) -> None:
    table = new_table(">f8")
    table.put_many([1], np.array([2.5], "<f8"))
    assert table[1] == 2.5
    assert client.table(table.name)[1] == 2.5 and client.table(table.name).dtype == ">f8"
    assert client.table(table.name, 8)[1] == np.array([2.5], ">f8").tobytes()


REFUSED_KEYS: list[tuple[Any, Any, type[Exception], str]] = [
    (np.uint64, np.array([1.0]), TypeError, "keys are float64, the table holds uint64"),
    (np.uint64, [1.5], TypeError, "keys are float64, the table holds uint64"),
    (np.uint64, np.array([-1]), OverflowError, "keys are int64, and -1 among them is none of uint64"),
    (np.uint64, [-1], OverflowError, "keys have -1 among them, which is none of uint64"),
    (np.uint64, [2**64], OverflowError, "keys have 18446744073709551616 among them, which is none of uint64"),
    (np.uint64, np.ma.array([1, 2], "u8", mask=[0, 1]), TypeError, "keys: masked items"),
    (np.float64, [0.5, 2**53 + 1], OverflowError, "keys have 9007199254740993 among them, which is none of float64"),
    (np.uint64, ["a"], TypeError, "the table holds uint64"),
    (np.uint64, np.zeros((2, 2), np.uint64), ValueError, r"shape \(2, 2\)"),
    (np.int64, np.array([2**63], np.uint64), OverflowError, "none of int64"),
    (np.float64, np.array([2**53 + 1]), OverflowError, "none of float64"),
    ("S8", [b"nine char"], ValueError, "9 B, the table holds 8 B"),
    ("S8", ["text"], TypeError, "the table holds |S8"),
]


@pytest.mark.parametrize(("key", "keys", "error", "text"), REFUSED_KEYS)
def test_keys_are_refused(new_table: Any, key: Any, keys: Any, error: type[Exception], text: str) -> None:
    table = new_table(8, key=key)
    with pytest.raises(error, match=text):
        table.multi_get(keys)


TWO_FLOATS = np.dtype([("narrow", "<f4"), ("wide", "<f8")])
REFUSED_VALUES: list[tuple[Any, Any, type[Exception], str]] = [
    (np.float64, np.array(["a"]), TypeError, "values are <U1, the table holds float64"),
    (np.int64, np.array([2.0]), TypeError, "values are float64, the table holds int64"),
    (np.float64, [0.5, 2**53 + 1], OverflowError, "values have 9007199254740993 among them"),
    (np.float64, [np.float32(0.5), 2**53 + 1], OverflowError, "values have 9007199254740993 among them"),
    (np.float64, [0.5, 2**2000], OverflowError, "among them, which is none of float64"),
    (np.complex128, [1j, 2**53 + 1], OverflowError, "none of complex128"),
    (np.float64, np.ma.array([0.5], mask=[1]), TypeError, "values: masked items, which no table holds"),
    (np.float64, [np.ma.masked], TypeError, "values: masked items"),
    (TWO_FLOATS, [(1e300, 1.0)], OverflowError, "in field 'narrow', have 1e.300 among them, which is beyond float32"),
    (8, [b"short"], ValueError, "5 B, the table holds 8 B"),
    (8, np.zeros(1, "f4"), TypeError, r"values are float32, the table holds \|V8"),
    ("S8", [b"nine char"], ValueError, "9 B, the table holds 8 B"),
]


@pytest.mark.parametrize(("value", "values", "error", "text"), REFUSED_VALUES)
def test_values_are_refused(
    new_table: Any, value: Any, values: Any, error: type[Exception], text: str
) -> None:
    table = new_table(value)
    with pytest.raises(error, match=text):
        table.put_many([1], values)
    assert table.get(1) is None


TICK = np.dtype([("price", "<f8"), ("size", "<u4"), ("venue", "S4"), ("past", "<i2", (2, 2))])
PAST = ((1, 2), (3, 4))
REFUSED_TICKS: list[tuple[Any, type[Exception], str]] = [
    ((1.5, 2.5, b"XETR", PAST), TypeError, "in field 'size', are float64, the table holds uint32"),
    ((1.5, np.int64(-1), b"XETR", PAST), OverflowError, "in field 'size'|out of bounds"),
    ((2**53 + 1, 2, b"XETR", PAST), OverflowError, "in field 'price', are int64"),
    ((1.5, 2, b"XETRA", PAST), ValueError, "in field 'venue', have up to 5 B, the table holds 4 B"),
    ((1.5, 2, "XETRA", PAST), ValueError, "in field 'venue', have up to 5 B, the table holds 4 B"),
    ((1.5, 2, b"XETR", ((1, 2), (3, 4.5))), TypeError, "in field 'past', are float64"),
    ((1.5, 2, b"XETR", np.array([[1, 2], [3, 2**20]])), OverflowError, "in field 'past'|out of bounds"),
]


@pytest.mark.parametrize(("tick", "error", "text"), REFUSED_TICKS)
def test_fields_that_would_be_cut_are_refused(
    new_table: Any, tick: Any, error: type[Exception], text: str
) -> None:
    table = new_table(TICK)
    for write in (lambda: table.put(1, tick), lambda: table.put_many([1, 2], [(1, 2, "A", PAST), tick])):
        with pytest.raises(error, match=text):
            write()
    assert table.get(1) is None


def test_tuples_are_stored_as_structures(new_table: Any) -> None:
    table = new_table(TICK)
    row = np.array([(2.5, 7, b"B", PAST)], TICK)[0]
    table.put_many([1, 2, 3], [(1, np.uint8(2), "A", PAST), (np.float32(0.5), 3, b"", np.array(PAST)), row])
    assert table[1].tolist()[:3] == (1.0, 2, b"A") and table[1]["past"].tolist() == [[1, 2], [3, 4]]
    assert table[2].tolist()[:3] == (0.5, 3, b"") and table[3] == row


def test_texts_of_numpy_are_filled_up_and_never_cut(new_table: Any) -> None:
    table = new_table("U4")
    table.put(1, "a")
    table.put_many([2, 3], ["", "abcd"])
    assert table.scan()[1].tolist() == ["a", "", "abcd"]
    with pytest.raises(ValueError, match="have up to 5 characters, the table holds 4 characters"):
        table.put(1, "abcde")


OTHER_TICKS: list[Any] = [
    [("price", "<f8"), ("size", "<i4"), ("venue", "S4"), ("past", "<i2", (2, 2))],
    [("price", "<f8"), ("count", "<u4"), ("venue", "S4"), ("past", "<i2", (2, 2))],
    [("price", "<f8"), ("size", "<u4"), ("venue", "S4"), ("past", "<i2", (4,))],
]


@pytest.mark.parametrize("made", ["f8", "i8", "u8", ">f8", "S8", "M8[ns]", "c16", "U4"])
def test_a_table_keeps_the_type_of_its_values(new_table: Any, client: farsight.Client, made: str) -> None:
    dtype = np.dtype(made)
    table = new_table(dtype)
    assert client.table(table.name).dtype == dtype and client.table(table.name, made).dtype == dtype
    assert {info.name: info.value_type for info in client.tables()}[table.name] == dtype.str
    assert client.table(table.name, dtype.itemsize).dtype == f"V{dtype.itemsize}"
    for other in ["f8", "i8", "u8", ">f8", "S8", "M8[ns]", "M8[us]", "c16", "U4"]:
        if np.dtype(other).itemsize == dtype.itemsize and np.dtype(other) != dtype:
            with pytest.raises(TypeError, match="their bits would be read as others"):
                client.table(table.name, other)
            with pytest.raises(farsight.TableError, match="of type"):
                client.create_table(table.name, other)


def test_a_structured_type_is_known_by_its_fields(new_table: Any, client: farsight.Client) -> None:
    table = new_table(TICK)
    table.put(1, np.zeros(1, TICK)[0])
    assert client.table(table.name, TICK)[1]["venue"] == b""
    assert client.table(table.name, TICK.itemsize)[1] == bytes(TICK.itemsize)
    with pytest.raises(TypeError, match="name the type that they were made with, or 24 for raw bytes"):
        client.table(table.name)
    for other in [*OTHER_TICKS, "S24"]:
        assert np.dtype(other).itemsize == TICK.itemsize
        with pytest.raises(TypeError, match="their bits would be read as others"):
            client.table(table.name, other)


def test_a_table_without_a_type_is_bytes_or_what_the_caller_says(new_table: Any, client: farsight.Client) -> None:
    table = new_table(8)
    table.put(1, np.float64(2.5).tobytes())
    assert client.table(table.name).dtype == "V8" and client.table(table.name, "f8")[1] == 2.5
    with pytest.raises(farsight.TableError, match="exists in xstore with u64 keys and values of 8 B"):
        client.create_table(table.name, "f8")


def test_names_of_types_that_a_server_makes_up_are_refused() -> None:
    from farsight import _convert

    for name, value_bytes in [("O", 8), ("<f8", 16), ("f8,f8", 16), ("V8", 8), ("(", 8), ("struct-00", 8), ("f8", 8)]:
        with pytest.raises(TypeError, match="of a type that it knows as"):
            _convert.stored_dtype(name, value_bytes, "t")
    assert _convert.stored_dtype("<f8", 8, "t") == np.float64


def test_wrong_types_of_tables_are_refused(client: farsight.Client, new_table: Any) -> None:
    with pytest.raises(TypeError, match="keys cannot be float32; they are one of uint64"):
        new_table(8, key=np.float32)
    with pytest.raises(TypeError, match="Python objects"):
        new_table(object)
    with pytest.raises(TypeError, match="have no size"):
        new_table("S")
    with pytest.raises(ValueError, match="at least 1 B"):
        new_table(0)
    for value_bytes in (7, 257):
        with pytest.raises(ValueError, match=f"{value_bytes} B: the format takes 8 to 256 B"):
            new_table(value_bytes)
    with pytest.raises(TypeError, match="values of 8 B, complex128 has 16 B"):
        client.table(new_table(np.float64).name, np.complex128)
    table = new_table(8)
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        table.put_many([1, 2], [bytes(8)])
    with pytest.raises(ValueError, match="the value|one of the"):
        table.put(1, b"short")
    with pytest.raises(ValueError, match="limit of at least 0"):
        table.scan(limit=-1)
