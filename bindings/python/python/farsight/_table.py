"""A table: keys and values as numpy arrays."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _convert, _frames, _native

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from ._client import Client

#: Pairs that an iterator has at a time.
_PAGE_PAIRS = 4096
_NOTHING = np.empty(0, np.uint8)


class Table:
    """An open table, made by `Client.table` and `Client.create_table`. Threads may share it.

    Keys are ordered: numerically, and S8 by their bytes. Single operations take and return Python's and numpy's
    scalars; the ones with many keys take and return arrays, and are the fast way: a thousand keys at once cost
    little more than ten one by one.

    Values of a table without a type (`dtype` is ``V8``, say) are bytes.

    It is used as a dict is: ``table[key]``, ``key in table``, ``del table[key]``, and iteration, in key order.
    ``table[low:high]`` are the keys and values from `low` on and below `high`. It has no length, which nobody
    counts. A table that is pickled is opened again by its name, over a connection of its own.
    """

    def __init__(self, client: Client, native: _native.Table, dtype: np.dtype[Any]) -> None:
        self._client = client
        self._native = native
        self._dtype = dtype
        self._key_dtype = _convert.KEY_DTYPES[native.kind]
        self._is_raw = _convert.is_raw(dtype)
        self._keys_are_words = native.kind == "u64"

    @property
    def name(self) -> str:
        """The table's name."""
        return self._native.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its values."""
        return self._dtype

    @property
    def key_dtype(self) -> np.dtype[Any]:
        """The type of its keys."""
        return self._key_dtype

    # Reads.

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of `key`, or `default` if it is absent."""
        found = self._native.get(self._key(key))
        return default if found is None else self._value(found[0])

    def version(self, key: Any) -> int | None:
        """The version of `key`, which grows with each write of it; `None` if it is absent."""
        found = self._native.get(self._key(key))
        return None if found is None else found[1]

    @overload
    def multi_get(
        self, keys: ArrayLike, *, versions: Literal[False] = ...
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]: ...

    @overload
    def multi_get(
        self, keys: ArrayLike, *, versions: Literal[True]
    ) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.uint64]]: ...

    def multi_get(self, keys: ArrayLike, *, versions: bool = False) -> tuple[NDArray[Any], ...]:
        """The values of `keys`, and a mask of those that were found. Values of absent keys are zeros.

        With ``versions=True`` a third array has the versions, zero for absent keys.
        """
        stamps, values = self._native.multi_get(self._keys(keys))
        found_versions = np.frombuffer(stamps, np.uint64)
        answers = (np.frombuffer(values, self._dtype), found_versions != 0)
        return (*answers, found_versions) if versions else answers

    def scan(
        self, start: Any = None, stop: Any = None, *, limit: int | None = None, reverse: bool = False
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Keys and values, in key order, of the pairs from `start` on and below `stop`: all, or the first `limit`.
        With `reverse` the greatest key comes first, also of a `limit`.

        They are fetched in pages and come together. Of a table that does not fit this process's memory, scan a
        piece at a time: the next one starts behind the last key.

        Every pair was there at an instant during the scan, none is skipped and none comes twice.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"a scan has a limit of at least 0, not {limit}")
        first = None if start is None else self._key(start)
        end = None if stop is None else self._key(stop)
        keys, values = self._native.scan(first, end, sys.maxsize if limit is None else limit, reverse)
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
        found, values, versions = self._native.neighbours(which, self._keys(keys))
        exist = np.frombuffer(versions, np.uint64) != 0
        return np.frombuffer(found, self._key_dtype), np.frombuffer(values, self._dtype), exist

    # Writes of one pair.

    def put(self, key: Any, value: Any) -> int:
        """Stores a pair, whether the key is present or not. Returns its version."""
        version = self._native.write("put", self._key(key), self._bytes(value))
        assert version is not None, "a put is never without effect"
        return version

    def insert(self, key: Any, value: Any) -> bool:
        """Stores a pair whose key is absent. False, and no change, if it is present."""
        return self._native.write("insert", self._key(key), self._bytes(value)) is not None

    def update(self, key: Any, value: Any) -> bool:
        """Replaces the value of a key that is present. False, and no change, if it is absent."""
        return self._native.write("update", self._key(key), self._bytes(value)) is not None

    def remove(self, key: Any) -> bool:
        """Removes a key. False, and no change, if it is absent."""
        return self._native.write("remove", self._key(key), _NOTHING) is not None

    # Writes of many pairs. Each is atomic by itself, all together are not.

    def put_many(self, keys: ArrayLike, values: ArrayLike) -> None:
        """`put` of many pairs, in their order.

        Raises `RefusedError` if the server refused some of them; the others were done.
        """
        self._write_many("put", keys, values)

    def insert_many(self, keys: ArrayLike, values: ArrayLike) -> NDArray[np.bool_]:
        """`insert` of many pairs: a mask of those that were absent. Raises as `put_many`."""
        return self._write_many("insert", keys, values)

    def update_many(self, keys: ArrayLike, values: ArrayLike) -> NDArray[np.bool_]:
        """`update` of many pairs: a mask of those that were present. Raises as `put_many`."""
        return self._write_many("update", keys, values)

    def remove_many(self, keys: ArrayLike) -> NDArray[np.bool_]:
        """`remove` of many keys: a mask of those that were present. Raises as `put_many`."""
        return _changed(self._native.write_many("remove", self._keys(keys), _NOTHING))

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
        compared = self._pairs(keys, expected)[1]
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
        return self._native.load(*self._pairs(keys, values))

    # The cache.

    def cache_stats(self) -> dict[str, int]:
        """What this process's cache of the table holds. ``memory_bytes`` is what the process takes for it."""
        return dict(self._native.cache_stats())

    def set_cache_bytes(self, cache_bytes: int | None) -> bool:
        """Makes `cache_bytes` what that cache may take from now on, `None`: as much as it needs.

        What is used little is then driven out, and fetched again on demand. False if the engine's cache (ROLEX's)
        takes what it needs, whatever is said.
        """
        return self._native.set_cache_bytes(2**64 - 1 if cache_bytes is None else cache_bytes)

    # As a mapping.

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            if key.step is not None:
                raise ValueError("a slice of keys has no step; use scan, with a limit or in reverse")
            return self.scan(key.start, key.stop)
        found = self._native.get(self._key(key))
        if found is None:
            raise KeyError(key)
        return self._value(found[0])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        if not self.remove(key):
            raise KeyError(key)

    def __contains__(self, key: Any) -> bool:
        return self._native.get(self._key(key)) is not None

    def __iter__(self) -> Iterator[Any]:
        """Its keys, in their order. They are fetched in pages: each was there at an instant meanwhile, none is
        skipped and none comes twice. It is no snapshot."""
        for keys, _ in self._pages():
            yield from keys

    def keys(self) -> Iterator[Any]:
        """Its keys, as ``iter(table)``."""
        return iter(self)

    def values(self) -> Iterator[Any]:
        """Its values, in the order of their keys, as ``iter(table)`` gives those."""
        for _, values in self._pages():
            yield from self._scalars(values)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Its pairs, in key order, as ``iter(table)`` gives the keys."""
        for keys, values in self._pages():
            yield from zip(keys, self._scalars(values), strict=True)

    def _pages(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        keys, values = self.scan(limit=_PAGE_PAIRS)
        while len(keys):
            yield keys, values
            last = keys[-1]
            # It comes first again, if nobody has removed it.
            keys, values = self.scan(last, limit=_PAGE_PAIRS)
            first = int(len(keys) > 0 and keys[0] == last)
            keys, values = keys[first:], values[first:]

    # Columns of other libraries.

    def to_pandas(self, start: Any = None, stop: Any = None, *, limit: int | None = None) -> pd.DataFrame:
        """What `scan` finds as a DataFrame of pandas, whose index are the keys. A structured type has a column a
        field, any other one has the column ``value``."""
        return _frames.to_pandas(*self.scan(start, stop, limit=limit))

    def to_arrow(self, start: Any = None, stop: Any = None, *, limit: int | None = None) -> pa.Table:
        """What `scan` finds as a table of pyarrow: the column ``key``, and those of `to_pandas`."""
        return _frames.to_arrow(*self.scan(start, stop, limit=limit))

    def put_frame(self, frame: pd.DataFrame | pa.Table, *, key: str | None = None) -> None:
        """`put_many` of a DataFrame of pandas, or a table of pyarrow. The column `key` has the keys; without it the
        index of a DataFrame has, or the column ``key``. The other columns are the values: the fields of a
        structured type by their names, or one column."""
        self.put_many(*_frames.pairs_of(frame, key, self._dtype))

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (self._client, self.name, self._dtype)

    def __repr__(self) -> str:
        return f"farsight.Table({self.name!r}, key={self._key_dtype}, value={self._dtype})"

    # Between numpy and bytes.

    def _key(self, key: Any) -> int:
        if self._keys_are_words and type(key) is int and 0 <= key < 1 << 64:
            return key  # As the rest would say, ten times faster.
        return int(_convert.scalar(key, self._key_dtype, "the key").view(np.uint64)[0])

    def _keys(self, keys: ArrayLike) -> NDArray[np.uint64]:
        return _convert.array(keys, self._key_dtype, "keys").view(np.uint64)

    def _bytes(self, value: Any) -> NDArray[np.uint8]:
        return _convert.scalar(value, self._dtype, "the value").view(np.uint8)

    def _value(self, stored: bytes) -> Any:
        return stored if self._is_raw else np.frombuffer(stored, self._dtype)[0]

    def _scalars(self, values: NDArray[Any]) -> Iterator[Any]:
        return (value.tobytes() for value in values) if self._is_raw else iter(values)

    def _pairs(self, keys: ArrayLike, values: ArrayLike) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        wanted = self._keys(keys)
        stored = _convert.array(values, self._dtype, "values")
        if len(wanted) != len(stored):
            raise ValueError(f"{len(wanted)} keys and {len(stored)} values")
        return wanted, stored.view(np.uint8)

    def _write_many(self, operation: _native.Write, keys: ArrayLike, values: ArrayLike) -> NDArray[np.bool_]:
        return _changed(self._native.write_many(operation, *self._pairs(keys, values)))

    def _versions(self, versions: ArrayLike, count: int) -> NDArray[np.uint8]:
        expected = _convert.array(versions, np.dtype("<u8"), "versions")
        if len(expected) != count:
            raise ValueError(f"{count} keys and {len(expected)} versions")
        return expected.view(np.uint8).reshape(count, expected.itemsize)

    def _rows(self, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return values.reshape(-1, self._dtype.itemsize)

    def _exchange(
        self, operation: _native.Conditional, keys: NDArray[np.uint64], *pieces: NDArray[np.uint8]
    ) -> NDArray[np.bool_]:
        """Conditional writes whose operands are these pieces, side by side: which of them changed something."""
        operands = np.ascontiguousarray(np.concatenate(pieces, axis=1)).reshape(-1)
        return _changed(self._native.exchange(operation, keys, operands)[0])


def _open(client: Client, name: str, dtype: np.dtype[Any]) -> Table:
    """A table that was pickled, opened anew."""
    return client.table(name, dtype)


def _changed(versions: bytearray) -> NDArray[np.bool_]:
    """Which writes changed something: those that gave or took a version."""
    mask: NDArray[np.bool_] = np.frombuffer(versions, np.uint64) != 0
    return mask
