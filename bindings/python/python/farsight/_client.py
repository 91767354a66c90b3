"""A connection, and the tables that it opens."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from . import _convert, _native
from ._table import Table
from ._values_table import ValuesTable


class TableInfo(NamedTuple):
    """What the server says of a table."""

    name: str
    #: The type of its keys; ``S``, without a length, if they have any.
    key_dtype: np.dtype[Any]
    #: Bytes of each value; of the longest, if they have any length.
    value_bytes: int
    #: The type of its values, as numpy names it (``<f8``), or ``str``; empty if the table was made without one.
    value_type: str
    #: True if values have any length.
    any_length: bool


#: The engines of tables.
Engine = Literal["xstore", "rolex", "xstore-d", "flexkv"]


def connect(url: str, *, allow_plaintext: bool = False, server_uids: Sequence[int] = ()) -> Client:
    """Connects to the server at `url`, as in ``shm:///run/user/1000/farsight.sock`` or ``tcp://127.0.0.1:7474``.

    The memory nodes of a pool are named with commas between: all of them for its first table, then any:
    ``tcp://10.0.0.1:7474,tcp://10.0.0.2:7474``.

    `allow_plaintext` connects over TCP to another machine, where anyone on the way can read and change
    everything. `server_uids` are users, by number, whose servers are trusted over shared memory besides those of
    this process's own user and of root. Raises `ConnectError` if nobody answers there or another user's server
    does, `ValueError` for a URL that is none.
    """
    return Client(url, allow_plaintext, server_uids)


class Client:
    """A client of one server or pool, made by `connect`. Threads may share it; forked children may not.

    As a context manager it closes itself. Tables that were opened before keep their connection until they are
    gone. A client that is pickled connects again, to the same address.
    """

    def __init__(self, url: str, allow_plaintext: bool, server_uids: Sequence[int]) -> None:
        self._options = (allow_plaintext, list(server_uids))
        self._native = _native.connect(url, *self._options)

    @property
    def url(self) -> str:
        """The server's address, as it was given."""
        return self._native.url

    @overload
    def create_table(
        self,
        name: str,
        value: type[bytes],
        key: DTypeLike = np.uint64,
        *,
        engine: Engine | None = None,
        sample: ArrayLike = (),
        value_bytes_max: int | None = None,
        ttl: _convert.Lifetime | None = None,
        memory_bytes: int | None = None,
        ack: Literal["durable", "memory"] | None = None,
        replicas: int | None = None,
        keys: _convert.ByteKey | None = None,
    ) -> ValuesTable[bytes]: ...

    @overload
    def create_table(
        self,
        name: str,
        value: type[str],
        key: DTypeLike = np.uint64,
        *,
        engine: Engine | None = None,
        sample: ArrayLike = (),
        value_bytes_max: int | None = None,
        ttl: _convert.Lifetime | None = None,
        memory_bytes: int | None = None,
        ack: Literal["durable", "memory"] | None = None,
        replicas: int | None = None,
        keys: _convert.ByteKey | None = None,
    ) -> ValuesTable[str]: ...

    @overload
    def create_table(
        self,
        name: str,
        value: DTypeLike | int,
        key: DTypeLike = np.uint64,
        *,
        engine: Engine | None = None,
        sample: ArrayLike = (),
        memory_bytes: int | None = None,
        ack: Literal["durable", "memory"] | None = None,
        replicas: int | None = None,
        keys: _convert.ByteKey | None = None,
    ) -> Table: ...

    def create_table(
        self,
        name: str,
        value: DTypeLike | int,
        key: DTypeLike = np.uint64,
        *,
        engine: Engine | None = None,
        sample: ArrayLike = (),
        value_bytes_max: int | None = None,
        ttl: _convert.Lifetime | None = None,
        memory_bytes: int | None = None,
        ack: Literal["durable", "memory"] | None = None,
        replicas: int | None = None,
        keys: _convert.ByteKey | None = None,
    ) -> Table | ValuesTable[bytes] | ValuesTable[str]:
        """Makes a table, or opens the one that is already defined so.

        `value` is the type of its values, or a number of bytes; a value has 8 to 256 B. `key` is uint64, int64,
        float64 or S8. The table keeps both types: who opens it with another type of values is refused. A number
        of bytes says nothing of their type, and fits a table of any.

        With `bytes` or `str` as `value` values have any length, up to `value_bytes_max`, by default as many
        as the engine has: 16 MiB in ``xstore`` and ``xstore-d``, 16,216 B in ``flexkv``.

        With `bytes` or `str` as `keys`, in place of `key`, keys have any length and no order. The table is of the
        engine ``flexkv`` then. As it is opened here it takes those keys alone. What is stored is bytes, of `str`
        its UTF-8. A key and its value have 16,232 B together at most.

        With `ttl` pairs of such a table have deadlines. A pair stays so many
        seconds, a float or a timedelta, after its last write; with `math.inf` until it is removed. Its writer may
        say otherwise (`ValuesTable.put`).

        `memory_bytes` is what the table's leaves may take on each node, and as much its blocks: 2 MiB to what the
        node gives any table, which is what it gets without it.

        `ack` says when a write is acknowledged at a server with a directory of data: when it is durable, or when it
        is in memory. Without it the server says.

        `replicas` says how many nodes of a pool have each pair of a table of ``flexkv``: one without it. Each node
        takes the table's memory at once if it is more.

        A server's other tables are of the engine ``xstore``. A pool's are of ``rolex``, which clients read and write
        without the memory nodes' processors, or of ``xstore-d``: each memory node has a range of the keys and
        writes there for the clients. The ranges never change; they get as many keys of `sample` each, or are of
        one width without one.

        Raises `TableError` for a bad name, for a table of that name with another definition, and for an engine
        that is not to be had here.
        """
        kind, bits = _kind_of(key, keys, sample)
        if value is bytes or value is str:
            if value_bytes_max is not None and not 0 < value_bytes_max < 1 << 32:
                raise ValueError(f"the longest value has at least 1 B and less than 4 GiB, not {value_bytes_max} B")
            named = _convert.VALUE_NAMES[value]
            # Zero is the table's way to say: until it is removed.
            default_ms = None if ttl is None else _convert.ttl_ms(ttl) % _convert.ENDLESS_MS
            if default_ms == 0 and ttl != math.inf:
                raise ValueError(f"pairs of a table stay for 1 ms at least, not {ttl!r}")
            sizes = (value_bytes_max or 0, True, default_ms)
            native = self._native.create_table(name, kind, sizes, engine, bits, named, memory_bytes, ack, replicas)
            return ValuesTable(self, native, bytes, keys) if value is bytes else ValuesTable(self, native, str, keys)
        if value_bytes_max is not None:
            raise TypeError(f"values of {value} have one size: value_bytes_max is for bytes and str")
        if ttl is not None:
            raise TypeError(f"pairs with values of {value} have no deadlines: ttl is for bytes and str")
        dtype = _convert.value_dtype(value)
        named = _convert.type_name(dtype)
        sizes = (dtype.itemsize, False, None)
        native = self._native.create_table(name, kind, sizes, engine, bits, named, memory_bytes, ack, replicas)
        return Table(self, native, dtype, keys)

    @overload
    def table(
        self, name: str, value: type[bytes], *, keys: _convert.ByteKey | None = None
    ) -> ValuesTable[bytes]: ...

    @overload
    def table(
        self, name: str, value: type[str], *, keys: _convert.ByteKey | None = None
    ) -> ValuesTable[str]: ...

    @overload
    def table(self, name: str, value: DTypeLike | int, *, keys: _convert.ByteKey | None = None) -> Table: ...

    @overload
    def table(self, name: str, value: None = None, *, keys: _convert.ByteKey | None = None) -> Any: ...

    def table(
        self, name: str, value: DTypeLike | int | None = None, *, keys: _convert.ByteKey | None = None
    ) -> Table | ValuesTable[bytes] | ValuesTable[str]:
        """Opens a table, with the type of values that it was made with.

        A table that was made without one, as by ``farsight create``, has raw bytes, unless `value` says what they
        are. A number of bytes as `value` opens any table as raw bytes. Of a structured type a table knows a
        digest alone: it is to be named here again.

        Of a table whose values have any length `value` is `bytes`, which opens any such table, or `str`.

        A table does not know whether its keys of any length are `bytes` or `str`: it takes both, unless `keys`
        says which.

        Raises `TableError` if there is none of that name, `TypeError` if its keys or values have another size or
        type.
        """
        native = self._native.table(name, None if keys is None else _convert.byte_key_name(keys))
        if keys is not None and native.kind != "bytes":
            raise TypeError(f"table {name!r} has keys of {_convert.KEY_DTYPES[native.kind]}, not of {keys.__name__}")
        stored = native.value_type
        if native.has_blocks:
            return ValuesTable(self, native, _values_of(native, value), keys)
        if value is bytes or value is str:
            raise TypeError(
                f"table {name!r} has values of {native.value_bytes} B each, {value.__name__} has any length"
            )
        if value is None:
            return Table(self, native, _convert.stored_dtype(stored, native.value_bytes, name), keys)
        dtype = _convert.value_dtype(value)
        if dtype.itemsize != native.value_bytes:
            raise TypeError(
                f"table {name!r} has values of {native.value_bytes} B, {dtype} has {dtype.itemsize} B"
            )
        wanted = _convert.type_name(dtype)
        if stored and wanted and stored != wanted:
            raise TypeError(
                f"table {name!r} has values of type {stored!r}, {dtype} is {wanted!r}: their bits would be read as "
                f"others. Open it without a type, or with {native.value_bytes} as raw bytes"
            )
        return Table(self, native, dtype, keys)

    def tables(self) -> list[TableInfo]:
        """All tables of the server or pool."""
        return [
            TableInfo(name, _convert.KEY_DTYPES.get(kind, np.dtype(bytes)), value_bytes, value_type, any_length)
            for name, kind, value_bytes, value_type, any_length in self._native.tables()
        ]

    def drop_table(self, name: str) -> None:
        """Drops a table. All that it holds is gone at once, and its memory once no program has it open.

        Who has it open fails within a second, with ``ReadError`` or ``WriteError``, unless a table is made under
        its name.

        Raises:
            TableError: There is no such table.
        """
        self._native.drop_table(name)

    def rename_table(self, old: str, new: str) -> None:
        """Gives a table another name. Who has it open under the old one finds it gone within a second.

        Raises:
            TableError: There is no such table, or ``new`` is no name or another table's.
        """
        self._native.rename_table(old, new)

    def swap_tables(self, first: str, second: str) -> None:
        """Lets two tables exchange their names, at one instant, so that one takes the other's place.

        Who has a table open follows its name: each call is answered from one table, and from the new one within a
        second.

        Raises:
            TableError: One of them is no table.
        """
        self._native.swap_tables(first, second)

    def stats(self) -> dict[str, Any]:
        """The server's statistics: itself, and under ``tables`` the tree, model and memory of each table.

        Those of a pool: under ``nodes``, in the order of their addresses, each node, and its part of the tables.
        """
        nodes: list[dict[str, Any]] = json.loads(self._native.stats())
        return nodes[0] if len(nodes) == 1 else {"nodes": nodes}

    def snapshot(self) -> None:
        """Makes a snapshot of each table in the server's directory of data, and waits until they are durable.

        The server recovers from them, and its log before them goes. Readers and writers go on meanwhile.

        Raises:
            TableError: The server keeps no data, or that failed.
        """
        self._native.snapshot()

    def close(self) -> None:
        """Ends the connection; nothing if it is closed."""
        self._native.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Client, (self.url, *self._options)

    def __repr__(self) -> str:
        return f"farsight.Client({self.url!r})"


def _values_of(native: _native.Table, value: Any) -> Any:
    """The type of values, of any length, of a table that is opened with `value`."""
    if value is None:
        return _convert.stored_value(native.value_type, native.name)
    if value is bytes:
        return value
    if value is not str:
        raise TypeError(f"table {native.name!r} has values of any length: open it with bytes or str, not {value!r}")
    if native.value_type not in ("", _convert.VALUE_NAMES[str]):
        raise TypeError(f"table {native.name!r} has values of type {native.value_type!r}, not str: open it as bytes")
    return value


def _kind_of(
    key: DTypeLike, keys: _convert.ByteKey | None, sample: ArrayLike
) -> tuple[_native.NewKind, NDArray[np.uint64]]:
    """The kind of keys of a new table, and the bits of a sample of them."""
    if keys is None:
        kind = _convert.key_kind(key)
        return kind, _convert.array(sample, _convert.KEY_DTYPES[kind], "keys of the sample").view(np.uint64)
    named = _convert.byte_key_name(keys)
    if key is not np.uint64:
        raise TypeError(f"keys have the type {key} or any length ({named}): say key or keys, not both")
    if np.size(sample) > 0:
        raise TypeError(f"keys of {named} have no order, so a sample of them says nothing")
    return named, np.empty(0, np.uint64)
