"""A table whose values have any length: bytes or texts, in lists."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _convert, _frames, _native
from ._keyed import KeyedTable, changed

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from ._client import Client

V = TypeVar("V", bytes, str)


class ValuesTable(KeyedTable, Generic[V]):
    """An open table whose values have any length, made by `Client.table` and `Client.create_table`. Threads may
    share it.

    Values are `bytes`, or `str`, which is stored as UTF-8. Keys are those of `Table`, in arrays where there are
    many; of any length they are in lists. Many values are a list; `None` stands for the value of an absent key. The
    operations with many keys are the fast way.

    It is used as a dict is, and pickled, as a `Table` is.
    """

    def __init__(
        self, client: Client, native: _native.Table, value: type[V], key: _convert.ByteKey | None = None
    ) -> None:
        super().__init__(client, native, key)
        self._type: type[V] = value

    @property
    def value(self) -> type[V]:
        """The type of its values: `bytes` or `str`."""
        return self._type

    @property
    def value_bytes_max(self) -> int:
        """Bytes of the longest value that it takes."""
        return self._native.value_bytes

    # Reads.

    @overload
    def multi_get(self, keys: ArrayLike, *, versions: Literal[False] = ...) -> list[V | None]: ...

    @overload
    def multi_get(
        self, keys: ArrayLike, *, versions: Literal[True]
    ) -> tuple[list[V | None], NDArray[np.uint64]]: ...

    def multi_get(
        self, keys: ArrayLike, *, versions: bool = False
    ) -> list[V | None] | tuple[list[V | None], NDArray[np.uint64]]:
        """The values of `keys`, `None` for absent ones. With ``versions=True`` an array has the versions, too, zero
        for absent keys."""
        stamps, stored = self._native.multi_get_values(self._keys(keys))
        values = self._optional(stored)
        return (values, np.frombuffer(stamps, np.uint64)) if versions else values

    def scan(
        self, start: Any = None, stop: Any = None, *, limit: int | None = None, reverse: bool = False
    ) -> tuple[NDArray[Any], list[V]]:
        """Keys and values of the pairs from `start` on and below `stop`, as `Table.scan`."""
        keys, values = self._native.scan_values(*self._range("scan", start, stop, limit), reverse)
        return np.frombuffer(keys, self._key_dtype), [self._value(value) for value in values]

    def floor(self, keys: ArrayLike) -> tuple[NDArray[Any], list[V | None]]:
        """Of each key the pair with the greatest key that is not above it: their keys and values. Where there is
        none, the value is `None`, and the key means nothing."""
        return self._neighbours("floor", keys)

    def ceiling(self, keys: ArrayLike) -> tuple[NDArray[Any], list[V | None]]:
        """As `floor`, with the least key that is not below."""
        return self._neighbours("ceiling", keys)

    def lower(self, keys: ArrayLike) -> tuple[NDArray[Any], list[V | None]]:
        """As `floor`, with the greatest key below."""
        return self._neighbours("lower", keys)

    def higher(self, keys: ArrayLike) -> tuple[NDArray[Any], list[V | None]]:
        """As `floor`, with the least key above."""
        return self._neighbours("higher", keys)

    def _neighbours(
        self, which: _native.Neighbour, keys: ArrayLike
    ) -> tuple[NDArray[Any], list[V | None]]:
        found, values = self._native.neighbours_values(which, self._ordered(which, keys))
        return np.frombuffer(found, self._key_dtype), self._optional(values)

    # Writes of many pairs. Each is atomic by itself, all together are not.

    def put_many(self, keys: ArrayLike, values: Iterable[V], *, ttl: _convert.Lifetime | None = None) -> None:
        """`put` of many pairs, in their order.

        Raises `RefusedError` if the server refused some of them; the others were done. A handler of a signal that
        raises, as Ctrl-C's does, ends it once in 65,536 pairs; those before were done.
        """
        self._write_values("put", keys, values, ttl)

    def insert_many(
        self, keys: ArrayLike, values: Iterable[V], *, ttl: _convert.Lifetime | None = None
    ) -> NDArray[np.bool_]:
        """`insert` of many pairs: a mask of those that were absent. Raises as `put_many`."""
        return changed(self._write_values("insert", keys, values, ttl))

    def update_many(
        self, keys: ArrayLike, values: Iterable[V], *, ttl: _convert.Lifetime | None = None
    ) -> NDArray[np.bool_]:
        """`update` of many pairs: a mask of those that were present. Raises as `put_many`."""
        return changed(self._write_values("update", keys, values, ttl))

    def _write_values(
        self, operation: _native.Write, keys: ArrayLike, values: Iterable[V], ttl: _convert.Lifetime | None
    ) -> bytearray:
        ttl_ms = None if ttl is None else _convert.ttl_ms(ttl)
        return self._native.write_values(operation, *self._pairs(keys, values), ttl_ms)

    # How long pairs stay, in a table made with a `ttl`.

    def put(self, key: Any, value: V, *, ttl: _convert.Lifetime | None = None) -> int:
        """Stores a pair, whether the key is present or not. Returns its version.

        With `ttl` the pair stays so many seconds, a float or a timedelta, or until it is removed (`math.inf`);
        without it as long as the table says. Raises `WriteError` if pairs of the table have no deadlines.
        """
        ttl_ms = None if ttl is None else _convert.ttl_ms(ttl)
        version = self._native.write("put", self._key(key), self._bytes(value), ttl_ms)
        assert version is not None, "a put is never without effect"
        return version

    def ttl(self, key: Any) -> float | None:
        """The seconds for which the pair of `key` stays; `math.inf`: until it is removed. `None` if the key is
        absent."""
        left_ms = self._native.ttl(self._key(key))
        if left_ms is None:
            return None
        return math.inf if left_ms == _convert.ENDLESS_MS else left_ms / 1000

    def set_ttl(self, key: Any, ttl: _convert.Lifetime) -> bool:
        """Lets the pair of `key` stay so long from now on, as `put` does. Its value stays as it is, its version
        grows. False if the key is absent."""
        return self._native.set_ttl(self._key(key), _convert.ttl_ms(ttl))

    # Writes that look at the pair first, in the same step: no other write comes between. Also by many keys.

    def compare_and_set(self, key: Any, version: int, value: V) -> bool:
        """Stores a value if the key has this `version`, as `version(key)` told it; 0 expects an absent key. False,
        and no change, if it has another one."""
        return bool(self.compare_and_set_many([key], [version], [value])[0])

    def compare_and_set_value(self, key: Any, expected: V, value: V) -> bool:
        """Replaces the value if it is `expected`. False, and no change, if it is not."""
        return bool(self.compare_and_set_value_many([key], [expected], [value])[0])

    def remove_if(self, key: Any, version: int) -> bool:
        """Removes the key if it has this `version`. False, and no change, if it has another one."""
        return bool(self.remove_if_many([key], [version])[0])

    def fetch_add(self, key: Any, addend: int) -> int:
        """Adds to the integer that is the key's value, and returns the integer before. An absent key counts as 0.

        The integer is signed and has 8 B, little-endian, of a table of `bytes`; sums wrap. A value of another
        length is refused, with `RefusedError`.
        """
        return int(self.fetch_add_many([key], [addend])[0])

    def swap(self, key: Any, value: V, default: Any = None) -> Any:
        """Stores a pair, present or not, and returns the value before, or `default` if there was none."""
        old = self.swap_many([key], [value])[0]
        return default if old is None else old

    def compare_and_set_many(
        self, keys: ArrayLike, versions: ArrayLike, values: Iterable[V]
    ) -> NDArray[np.bool_]:
        """`compare_and_set` of many pairs: a mask of those that were stored. Raises as `put_many`."""
        wanted, stored = self._pairs(keys, values)
        expected = self._words(versions, len(wanted), "<u8", "versions")
        return changed(self._native.exchange_values("compare_and_set", wanted, expected, stored)[0])

    def compare_and_set_value_many(
        self, keys: ArrayLike, expected: Iterable[V], values: Iterable[V]
    ) -> NDArray[np.bool_]:
        """`compare_and_set_value` of many pairs: a mask of those that were stored. Raises as `put_many`."""
        wanted, stored = self._pairs(keys, values)
        compared = self._stored(expected, len(wanted))
        return changed(self._native.exchange_values("compare_and_set_value", wanted, compared, stored)[0])

    def remove_if_many(self, keys: ArrayLike, versions: ArrayLike) -> NDArray[np.bool_]:
        """`remove_if` of many keys: a mask of those that were removed. Raises as `put_many`."""
        wanted = self._keys(keys)
        expected = self._words(versions, len(wanted), "<u8", "versions")
        return changed(self._native.exchange_values("remove_if", wanted, expected, [b""] * len(wanted))[0])

    def fetch_add_many(self, keys: ArrayLike, addends: ArrayLike) -> NDArray[np.int64]:
        """`fetch_add` of many keys, in their order: the integers before. Raises as `put_many`."""
        if self._type is not bytes:
            raise TypeError(f"table {self.name!r} has values of str: fetch_add wants bytes")
        wanted = self._keys(keys)
        added = self._words(addends, len(wanted), "<i8", "integers to add")
        _, old = self._native.exchange_values("fetch_add", wanted, added, [b""] * len(wanted))
        return np.frombuffer(b"".join(bytes(8) if value is None else value for value in old), np.int64)

    def swap_many(self, keys: ArrayLike, values: Iterable[V]) -> list[V | None]:
        """`swap` of many pairs, in their order: the values before, `None` where there was none. Raises as
        `put_many`."""
        wanted, stored = self._pairs(keys, values)
        return self._optional(self._native.exchange_values("swap", wanted, [b""] * len(wanted), stored)[1])

    def load(self, keys: ArrayLike, values: Iterable[V]) -> int:
        """Stores pairs with ascending keys in the empty table, faster than `put_many`, and returns their number.

        Raises `LoadError` for keys out of order and for a table that is not empty.
        """
        wanted = self._ordered("load", keys)
        return self._native.load_values(wanted, self._stored(values, len(wanted)))

    # Columns of other libraries.

    def to_pandas(self, start: Any = None, stop: Any = None, *, limit: int | None = None) -> pd.DataFrame:
        """What `scan` finds as a DataFrame of pandas: the keys as its index, and the column ``value``."""
        self._native.check_order("to_pandas")
        return _frames.to_pandas(*self.scan(start, stop, limit=limit))

    def to_arrow(self, start: Any = None, stop: Any = None, *, limit: int | None = None) -> pa.Table:
        """What `scan` finds as a table of pyarrow: the columns ``key`` and ``value``."""
        self._native.check_order("to_arrow")
        return _frames.to_arrow(*self.scan(start, stop, limit=limit))

    def put_frame(self, frame: pd.DataFrame | pa.Table, *, key: str | None = None) -> None:
        """`put_many` of a DataFrame of pandas, or a table of pyarrow. The column `key` has the keys; without it the
        index of a DataFrame has, or the column ``key``. The other column has the values."""
        keys, values = _frames.pairs_of(frame, key, None)
        self.put_many(keys, values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (self._client, self.name, self._type, self._key_type)

    def __repr__(self) -> str:
        return f"farsight.ValuesTable({self.name!r}, key={self._of_key.name}, value={self._type.__name__})"

    # Between Python's values and bytes.

    def _bytes(self, value: Any) -> bytes:
        return _convert.any_length(value, self._type, "the value")

    def _value(self, stored: bytes) -> Any:
        return stored if self._type is bytes else stored.decode()

    def _optional(self, stored: list[bytes | None]) -> list[Any]:
        if self._type is bytes:
            return stored
        return [None if value is None else value.decode() for value in stored]

    def _pairs(self, keys: ArrayLike, values: Iterable[V]) -> tuple[_native.Keys, list[bytes]]:
        wanted = self._keys(keys)
        return wanted, self._stored(values, len(wanted))

    def _stored(self, values: Iterable[V], count: int) -> list[bytes]:
        if isinstance(values, (bytes, bytearray, memoryview, str)):
            raise TypeError(f"values are many, in a list, not one {type(values).__name__}")
        stored = [_convert.any_length(value, self._type, "one of the values") for value in values]
        if len(stored) != count:
            raise ValueError(f"{count} keys and {len(stored)} values")
        return stored

    @staticmethod
    def _words(words: ArrayLike, count: int, dtype: str, what: str) -> list[bytes]:
        given = _convert.array(words, np.dtype(dtype), what)
        if len(given) != count:
            raise ValueError(f"{count} keys and {len(given)} {what}")
        return [word.tobytes() for word in given]


def _open(
    client: Client, name: str, value: type[Any], key: _convert.ByteKey | None = None
) -> ValuesTable[Any]:
    """A table that was pickled, opened anew."""
    table = client.table(name, value, keys=key)
    assert isinstance(table, ValuesTable), "a table of bytes or str has values of any length"
    return table
