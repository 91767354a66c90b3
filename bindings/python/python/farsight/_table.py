"""A table: keys and values as numpy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _convert, _frames, _native
from ._keyed import PAGE_PAIRS, KeyedTable, changed

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from ._client import Client


class Table(KeyedTable):
    """An open table, made by `Client.table` and `Client.create_table`. Threads may share it.

    Keys are ordered: numerically, and S8 by their bytes. Single operations take and return Python's and numpy's
    scalars; the ones with many keys take and return arrays, and are the fast way: a thousand keys at once cost
    little more than ten one by one.

    Keys of tables made with ``keys=bytes`` or ``keys=str`` have any length and no order. Many of them are a list, or
    whatever else yields them. What needs an order raises `TypeError`.

    Values of a table without a type (`dtype` is ``V8``, say) are bytes.

    It is used as a dict is: ``table[key]``, ``key in table``, ``del table[key]``, and iteration, in key order.
    ``table[low:high]`` are the keys and values from `low` on and below `high`. It has no length, which nobody
    counts. A table that is pickled is opened again by its name, over a connection of its own.
    """

    def __init__(
        self,
        client: Client,
        native: _native.Table,
        dtype: np.dtype[Any],
        key: _convert.ByteKey | None = None,
    ) -> None:
        super().__init__(client, native, key)
        self._dtype = dtype
        self._is_raw = _convert.is_raw(dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its values."""
        return self._dtype

    # Reads.

    @overload
    def multi_get(
        self, keys: ArrayLike, *, versions: Literal[False] = ..., out: NDArray[Any] | None = ...
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]: ...

    @overload
    def multi_get(
        self, keys: ArrayLike, *, versions: Literal[True], out: NDArray[Any] | None = ...
    ) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.uint64]]: ...

    def multi_get(
        self, keys: ArrayLike, *, versions: bool = False, out: NDArray[Any] | None = None
    ) -> tuple[NDArray[Any], ...]:
        """The values of `keys`, and a mask of those that were found. Values of absent keys are zeros.

        With ``versions=True`` a third array has the versions, zero for absent keys. `out` is a contiguous array of
        the table's type, as long as the keys: it gets the values, and is returned in place of a new array. If the
        call raises, it is unchanged.
        """
        wanted = self._keys(keys)
        room = None if out is None else _convert.room(out, self._dtype, len(wanted))
        found, stamps, stored = self._native.multi_get(wanted, versions, room)
        values = np.frombuffer(stored, self._dtype) if out is None else out
        answers = (values, np.frombuffer(found, np.bool_))
        return (*answers, np.frombuffer(stamps, np.uint64)) if versions else answers

    def scan(
        self, start: Any = None, stop: Any = None, *, limit: int | None = None, reverse: bool = False
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Keys and values, in key order, of the pairs from `start` on and below `stop`: all, or the first `limit`.
        With `reverse` the greatest key comes first, also of a `limit`.

        They are fetched in pages and come together. Of a table that does not fit this process's memory, scan a
        piece at a time: the next one starts behind the last key.

        Every pair was there at an instant during the scan, none is skipped and none comes twice.
        """
        keys, values = self._native.scan(*self._range("scan", start, stop, limit), reverse)
        return np.frombuffer(keys, self._key_dtype), np.frombuffer(values, self._dtype)

    def floor(self, keys: ArrayLike) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
        """Of each key the pair with the greatest key that is not above it: their keys, their values, and which exist.

        An as-of join: with a table of prices by the day from which they hold, the price on each day.
        """
        return self._neighbours("floor", keys)

    def ceiling(self, keys: ArrayLike) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
        """As `floor`, with the least key that is not below."""
        return self._neighbours("ceiling", keys)

    def lower(self, keys: ArrayLike) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
        """As `floor`, with the greatest key below."""
        return self._neighbours("lower", keys)

    def higher(self, keys: ArrayLike) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
        """As `floor`, with the least key above."""
        return self._neighbours("higher", keys)

    def _neighbours(
        self, which: _native.Neighbour, keys: ArrayLike
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
        found, values, versions = self._native.neighbours(which, self._ordered(which, keys))
        exist = np.frombuffer(versions, np.uint64) != 0
        return np.frombuffer(found, self._key_dtype), np.frombuffer(values, self._dtype), exist

    def items(self) -> Iterator[tuple[Any, Any]]:
        self._native.check_order("iteration")
        return self._each_item()

    def _each_item(self) -> Iterator[tuple[Any, Any]]:
        keys, values = self.scan(limit=PAGE_PAIRS)
        while len(keys):
            scalars = (value.tobytes() for value in values) if self._is_raw else values
            yield from zip(keys, scalars, strict=True)
            last = keys[-1:]
            # It comes first again, if nobody has removed it. NaN is equal to nothing, and 0.0 to -0.0.
            keys, values = self.scan(last[0], limit=PAGE_PAIRS)
            first = int(keys[:1].tobytes() == last.tobytes())
            keys, values = keys[first:], values[first:]

    # Writes of many pairs. Each is atomic by itself, all together are not.

    def put_many(self, keys: ArrayLike, values: ArrayLike) -> None:
        """`put` of many pairs, in their order.

        Raises `RefusedError` if the server refused some of them; the others were done. A handler of a signal that
        raises, as Ctrl-C's does, ends it once in 65,536 pairs; those before were done.
        """
        self._write_many("put", keys, values)

    def insert_many(self, keys: ArrayLike, values: ArrayLike) -> NDArray[np.bool_]:
        """`insert` of many pairs: a mask of those that were absent. Raises as `put_many`."""
        return self._write_many("insert", keys, values)

    def update_many(self, keys: ArrayLike, values: ArrayLike) -> NDArray[np.bool_]:
        """`update` of many pairs: a mask of those that were present. Raises as `put_many`."""
        return self._write_many("update", keys, values)

    # Writes that look at the pair first, in the same step: no other write comes between. Also by many keys.

    def compare_and_set(self, key: Any, version: int, value: Any) -> bool:
        """Stores a value if the key has this `version`, as `version(key)` told it; 0 expects an absent key. False,
        and no change, if it has another one."""
        return bool(self.compare_and_set_many([key], [version], [value])[0])

    def compare_and_set_value(self, key: Any, expected: Any, value: Any) -> bool:
        """Replaces the value if it is `expected`, byte for byte. False, and no change, if it is not."""
        return bool(self.compare_and_set_value_many([key], [expected], [value])[0])

    def remove_if(self, key: Any, version: int) -> bool:
        """Removes the key if it has this `version`. False, and no change, if it has another one."""
        return bool(self.remove_if_many([key], [version])[0])

    def fetch_add(self, key: Any, addend: int) -> int:
        """Adds to the integer that is the key's value, and returns the integer before. An absent key counts as 0.

        The table's values are ``int64`` or ``uint64``. Sums wrap.
        """
        return int(self.fetch_add_many([key], [addend])[0])

    def swap(self, key: Any, value: Any, default: Any = None) -> Any:
        """Stores a pair, present or not, and returns the value before, or `default` if there was none."""
        old, found = self.swap_many([key], [value])
        if not found[0]:
            return default
        return old.tobytes() if self._is_raw else old[0]

    def compare_and_set_many(self, keys: ArrayLike, versions: ArrayLike, values: ArrayLike) -> NDArray[np.bool_]:
        """`compare_and_set` of many pairs: a mask of those that were stored. Raises as `put_many`."""
        wanted, stored = self._pairs(keys, values)
        expected = self._versions(versions, len(wanted))
        return self._exchange("compare_and_set", wanted, expected, self._rows(stored))

    def compare_and_set_value_many(
        self, keys: ArrayLike, expected: ArrayLike, values: ArrayLike
    ) -> NDArray[np.bool_]:
        """`compare_and_set_value` of many pairs: a mask of those that were stored. Raises as `put_many`."""
        wanted, stored = self._pairs(keys, values)
        compared = self._stored(expected, len(wanted))
        return self._exchange("compare_and_set_value", wanted, self._rows(compared), self._rows(stored))

    def remove_if_many(self, keys: ArrayLike, versions: ArrayLike) -> NDArray[np.bool_]:
        """`remove_if` of many keys: a mask of those that were removed. Raises as `put_many`."""
        wanted = self._keys(keys)
        return self._exchange("remove_if", wanted, self._versions(versions, len(wanted)))

    def fetch_add_many(self, keys: ArrayLike, addends: ArrayLike) -> NDArray[Any]:
        """`fetch_add` of many keys, in their order: the integers before. Raises as `put_many`."""
        if self._dtype not in (np.dtype("<i8"), np.dtype("<u8")):
            raise TypeError(f"table {self.name!r} has values of {self._dtype}: fetch_add wants int64 or uint64")
        wanted = self._keys(keys)
        added = _convert.array(addends, np.dtype("<i8"), "what is added")
        if len(wanted) != len(added):
            raise ValueError(f"{len(wanted)} keys and {len(added)} integers to add")
        _, old, _ = self._native.exchange("fetch_add", wanted, added.view(np.uint8))
        return np.frombuffer(old, self._dtype)

    def swap_many(self, keys: ArrayLike, values: ArrayLike) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """`swap` of many pairs, in their order: the values before, and a mask of those that there were. Raises as
        `put_many`."""
        _, old, found = self._native.exchange("swap", *self._pairs(keys, values))
        return np.frombuffer(old, self._dtype), np.frombuffer(found, np.bool_)

    def load(self, keys: ArrayLike, values: ArrayLike) -> int:
        """Stores pairs with ascending keys in the empty table, many times faster than `put_many`, and returns
        their number. They become visible all at once.

        Raises `LoadError` for keys out of order and for a table that is not empty.
        """
        wanted = self._ordered("load", keys)
        return self._native.load(wanted, self._stored(values, len(wanted)))

    # Columns of other libraries.

    def to_pandas(self, start: Any = None, stop: Any = None, *, limit: int | None = None) -> pd.DataFrame:
        """What `scan` finds as a DataFrame of pandas, whose index are the keys. A structured type has a column a
        field, any other one has the column ``value``."""
        self._native.check_order("to_pandas")
        return _frames.to_pandas(*self.scan(start, stop, limit=limit))

    def to_arrow(self, start: Any = None, stop: Any = None, *, limit: int | None = None) -> pa.Table:
        """What `scan` finds as a table of pyarrow: the column ``key``, and those of `to_pandas`."""
        self._native.check_order("to_arrow")
        return _frames.to_arrow(*self.scan(start, stop, limit=limit))

    def put_frame(self, frame: pd.DataFrame | pa.Table, *, key: str | None = None) -> None:
        """`put_many` of a DataFrame of pandas, or a table of pyarrow. The column `key` has the keys; without it the
        index of a DataFrame has, or the column ``key``. The other columns are the values: the fields of a
        structured type by their names, or one column."""
        self.put_many(*_frames.pairs_of(frame, key, self._dtype))

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (self._client, self.name, self._dtype, self._key_type)

    def __repr__(self) -> str:
        return f"farsight.Table({self.name!r}, key={self._of_key.name}, value={self._dtype})"

    # Between numpy and bytes.

    def _bytes(self, value: Any) -> NDArray[np.uint8]:
        return _convert.scalar(value, self._dtype, "the value").view(np.uint8)

    def _value(self, stored: bytes) -> Any:
        return stored if self._is_raw else np.frombuffer(stored, self._dtype)[0]

    def _pairs(self, keys: ArrayLike, values: ArrayLike) -> tuple[_native.Keys, NDArray[np.uint8]]:
        wanted = self._keys(keys)
        return wanted, self._stored(values, len(wanted))

    def _stored(self, values: ArrayLike, count: int) -> NDArray[np.uint8]:
        stored = _convert.array(values, self._dtype, "values")
        if len(stored) != count:
            raise ValueError(f"{count} keys and {len(stored)} values")
        return stored.view(np.uint8)

    def _write_many(self, operation: _native.Write, keys: ArrayLike, values: ArrayLike) -> NDArray[np.bool_]:
        return changed(self._native.write_many(operation, *self._pairs(keys, values)))

    def _versions(self, versions: ArrayLike, count: int) -> NDArray[np.uint8]:
        expected = _convert.array(versions, np.dtype("<u8"), "versions")
        if len(expected) != count:
            raise ValueError(f"{count} keys and {len(expected)} versions")
        return expected.view(np.uint8).reshape(count, expected.itemsize)

    def _rows(self, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return values.reshape(-1, self._dtype.itemsize)

    def _exchange(
        self, operation: _native.Conditional, keys: _native.Keys, *pieces: NDArray[np.uint8]
    ) -> NDArray[np.bool_]:
        """Conditional writes whose operands are these pieces, side by side: which of them changed something."""
        operands = np.ascontiguousarray(np.concatenate(pieces, axis=1)).reshape(-1)
        return changed(self._native.exchange(operation, keys, operands)[0])


def _open(client: Client, name: str, dtype: np.dtype[Any], key: _convert.ByteKey | None = None) -> Table:
    """A table that was pickled, opened anew."""
    return client.table(name, dtype, keys=key)
