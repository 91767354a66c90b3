"""A connection, and the tables that it opens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from . import _convert, _native
from ._table import Table


class TableInfo(NamedTuple):
    """What the server says of a table."""

    name: str
    #: The type of its keys.
    key_dtype: np.dtype[Any]
    #: Bytes of each value.
    value_bytes: int


def connect(url: str, *, allow_plaintext: bool = False, server_uids: Sequence[int] = ()) -> Client:
    """Connects to the server at `url`, as in ``shm:///run/user/1000/farsight.sock`` or ``tcp://127.0.0.1:7474``.

    The memory nodes of a pool are named with commas between, always in the same order:
    ``tcp://10.0.0.1:7474,tcp://10.0.0.2:7474``.

    `allow_plaintext` connects over TCP to another machine, where whoever is on the way can read and change
    everything. `server_uids` are users, by number, whose servers are trusted over shared memory besides those of
    this process's own user and of root. Raises `ConnectError` if nobody answers there or another user's server
    does, `ValueError` for a URL that is none.
    """
    return Client(_native.connect(url, allow_plaintext, list(server_uids)))


class Client:
    """A client of one server or pool, made by `connect`. Threads may share it; forked children may not.

    As a context manager it closes itself. Tables that were opened before keep their connection until they are
    gone.
    """

    def __init__(self, native: _native.Client) -> None:
        self._native = native

    @property
    def url(self) -> str:
        """The server's address, as it was given."""
        return self._native.url

    def create_table(
        self,
        name: str,
        value: DTypeLike | int,
        key: DTypeLike = np.uint64,
        *,
        engine: Literal["xstore", "rolex", "xstore-d"] | None = None,
        sample: ArrayLike = (),
    ) -> Table:
        """Makes a table, or opens the one that is already defined so.

        `value` is the type of its values, or a number of bytes; a value has 8 to 256 B. `key` is uint64, int64,
        float64 or S8. The server knows the type of keys and the size of values; what the bytes of a value mean
        is for its clients to agree on.

        A server's tables are of the engine ``xstore``. A pool's are of ``rolex``, which clients read and write
        without the memory nodes' processors, or of ``xstore-d``: each memory node has a range of the keys and
        writes there for the clients. The ranges never change; they get as many keys of `sample` each, or are of
        one width without one.

        Raises `TableError` for a bad name, for a table of that name with another definition, and for an engine
        that is not to be had here.
        """
        dtype, kind = _convert.value_dtype(value), _convert.key_kind(key)
        bits = _convert.array(sample, _convert.KEY_DTYPES[kind], "keys of the sample").view(np.uint64)
        return Table(self._native.create_table(name, kind, dtype.itemsize, engine, bits), dtype)

    def table(self, name: str, value: DTypeLike | None = None) -> Table:
        """Opens a table, with values of type `value`; without one, as raw bytes.

        Raises `TableError` if there is none of that name, `TypeError` if its values have another size.
        """
        native = self._native.table(name)
        dtype = _convert.value_dtype(native.value_bytes if value is None else value)
        if dtype.itemsize != native.value_bytes:
            raise TypeError(
                f"table {name!r} has values of {native.value_bytes} B, {dtype} has {dtype.itemsize} B"
            )
        return Table(native, dtype)

    def tables(self) -> list[TableInfo]:
        """All tables of the server or pool."""
        return [
            TableInfo(name, _convert.KEY_DTYPES[kind], value_bytes)
            for name, kind, value_bytes in self._native.tables()
        ]

    def stats(self) -> dict[str, Any]:
        """The server's statistics: itself, and under ``tables`` the tree, model and memory of each table.

        Those of a pool: under ``memory_nodes``, in the order of their addresses, each node, and its part of the
        tables.
        """
        statistics: dict[str, Any] | list[Any] = json.loads(self._native.stats())
        return {"memory_nodes": statistics} if isinstance(statistics, list) else statistics

    def close(self) -> None:
        """Ends the connection; nothing if it is closed."""
        self._native.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"farsight.Client({self.url!r})"
