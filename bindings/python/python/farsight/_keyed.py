"""What tables share, whatever their values are: keys, single pairs, and the ways of a dict."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _convert, _keys, _native

if TYPE_CHECKING:
    from ._client import Client

#: Pairs of one size that an iterator has at a time.
PAGE_PAIRS = 4096
NOTHING = np.empty(0, np.uint8)


class KeyedTable(ABC):
    """An open table. What its values are is its subclass's."""

    def __init__(self, client: Client, native: _native.Table, key: _convert.ByteKey | None) -> None:
        self._client = client
        self._native = native
        self._key_type = key
        is_bytes = native.kind == "bytes"
        self._of_key: _keys.Keys = _keys.ByteKeys(key) if is_bytes else _keys.NumpyKeys(native.kind)
        # Without a step in between, for they are part of each call.
        self._key, self._keys = self._of_key.one, self._of_key.many
        self._key_dtype = self._of_key.dtype

    @property
    def name(self) -> str:
        """The table's name."""
        return self._native.name

    @property
    def key_dtype(self) -> np.dtype[Any]:
        """The type of its keys; of keys of any length that of `bytes` or `str`, whichever it is open for."""
        return self._key_dtype

    @abstractmethod
    def scan(
        self, start: Any = None, stop: Any = None, *, limit: int | None = None, reverse: bool = False
    ) -> tuple[NDArray[Any], Any]:
        """Keys and values, in key order."""

    @abstractmethod
    def _bytes(self, value: Any) -> NDArray[np.uint8] | bytes:
        """The bytes that are stored of a value."""

    @abstractmethod
    def _value(self, stored: bytes) -> Any:
        """The value of which these bytes are stored."""

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of `key`, or `default` if it is absent."""
        found = self._native.get(self._key(key))
        return default if found is None else self._value(found[0])

    def version(self, key: Any) -> int | None:
        """The version of `key`, which grows with each write of it; `None` if it is absent."""
        found = self._native.get(self._key(key))
        return None if found is None else found[1]

    def scan_keys(
        self, start: Any = None, stop: Any = None, *, limit: int | None = None, reverse: bool = False
    ) -> NDArray[Any]:
        """The keys that `scan` finds, without their values: these are not read, however long they are, unless pairs
        have deadlines."""
        keys = self._native.scan_keys(*self._range("scan_keys", start, stop, limit), reverse)
        return np.frombuffer(keys, self._key_dtype)

    def count(self, start: Any = None, stop: Any = None) -> int:
        """How many keys there are from `start` on and below `stop`. It looks at all of them, as `scan_keys` does."""
        first, end, _ = self._range("count", start, stop, None)
        return self._native.count(first, end)

    # Writes of one pair.

    def put(self, key: Any, value: Any) -> int:
        """Stores a pair, whether the key is present or not. Returns its version."""
        version = self._native.write("put", self._key(key), self._bytes(value), None)
        assert version is not None, "a put is never without effect"
        return version

    def insert(self, key: Any, value: Any) -> bool:
        """Stores a pair whose key is absent. False, and no change, if it is present."""
        return self._native.write("insert", self._key(key), self._bytes(value), None) is not None

    def update(self, key: Any, value: Any) -> bool:
        """Replaces the value of a key that is present. False, and no change, if it is absent."""
        return self._native.write("update", self._key(key), self._bytes(value), None) is not None

    def remove(self, key: Any) -> bool:
        """Removes a key. False, and no change, if it is absent."""
        return self._native.write("remove", self._key(key), NOTHING, None) is not None

    def remove_many(self, keys: ArrayLike) -> NDArray[np.bool_]:
        """`remove` of many keys: a mask of those that were present. Raises as `put_many`."""
        return changed(self._native.write_many("remove", self._keys(keys), NOTHING))

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

    def set_value_cache(self, cache_bytes: int, reads_a_write: int = 64) -> bool:
        """Lets this process keep values in so many bytes, and answer reads by them; 0: it keeps none.

        A value is kept once its key was read `reads_a_write` times as often as it was written. Who writes a key
        whose value anybody keeps waits for all who keep values of the table, so no read is stale. False if the
        engine keeps none: values of FlexKV's tables alone are kept.
        """
        return self._native.set_value_cache(cache_bytes, reads_a_write)

    def set_reads_by_others(self, reads: Literal["none", "addresses", "values"]) -> None:
        """Says what compute nodes that serve do for this process's reads from now on.

        ``"none"``, as at first: they write alone. ``"addresses"``: they say where a key stands that this process does
        not know. ``"values"``: they read all keys of their partitions. Only FlexKV's tables are served; reads of others
        stay as they are.
        """
        self._native.set_reads_by_others(reads)

    # All pairs.

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """All its pairs, in the order in which the engine has them: also of tables without an order of keys.

        They are fetched in pages, as by iteration. A key that is there from begin to end comes once, with a value
        that it had meanwhile; no key comes twice.
        """
        walk = self._native.pairs()
        return (
            (self._of_key.found(key), self._value(value))
            for page in iter(walk.next_page, [])
            for key, value in page
        )

    # As a mapping.

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            if key.step is not None:
                raise ValueError("a slice of keys has no step; use scan, with a limit or in reverse")
            self._native.check_order("slice")
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
        self._native.check_order("iteration")
        return self._each_key()

    def _each_key(self) -> Iterator[Any]:
        keys = self.scan_keys(limit=PAGE_PAIRS)
        while len(keys):
            yield from keys
            last = keys[-1:]
            keys = self.scan_keys(last[0], limit=PAGE_PAIRS)
            # It comes first again, if nobody has removed it. NaN is equal to nothing, and 0.0 to -0.0.
            keys = keys[int(keys[:1].tobytes() == last.tobytes()) :]

    def keys(self) -> Iterator[Any]:
        """Its keys, as ``iter(table)``."""
        return iter(self)

    def values(self) -> Iterator[Any]:
        """Its values, in the order of their keys, as ``iter(table)`` gives those."""
        return (value for _, value in self.items())

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Its pairs, in key order, as ``iter(table)`` gives the keys."""
        self._native.check_order("iteration")
        return self.pairs()

    def __len__(self) -> NoReturn:
        raise TypeError(f"table {self.name!r} keeps no count of its keys: if they have an order, count() looks at all")

    def __bool__(self) -> bool:
        return True

    # What needs an order of keys: `check_order` names it where they have none.

    def _ordered(self, what: str, keys: ArrayLike) -> NDArray[np.uint64]:
        """Many keys of such an operation."""
        self._native.check_order(what)
        wanted = self._keys(keys)
        assert isinstance(wanted, np.ndarray), "keys with an order have eight bytes"
        return wanted

    def _range(self, what: str, start: Any, stop: Any, limit: int | None) -> tuple[Any, Any, int]:
        """What a scan asks for."""
        self._native.check_order(what)
        if limit is not None and limit < 0:
            raise ValueError(f"a scan has a limit of at least 0, not {limit}")
        first = None if start is None else self._key(start)
        end = None if stop is None else self._key(stop)
        return first, end, sys.maxsize if limit is None else limit


def changed(versions: bytearray) -> NDArray[np.bool_]:
    """Which writes changed something: those that gave or took a version."""
    mask: NDArray[np.bool_] = np.frombuffer(versions, np.uint64) != 0
    return mask
