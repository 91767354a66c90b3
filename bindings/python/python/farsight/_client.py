"""A connection, and the tables that it opens."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from . import _convert, _native
from ._table import Table


class TableInfo(NamedTuple):
    """What the server says of a table."""

    name: str
    #: The type of its keys.
    key_dtype: np.dtype[Any]
    #: Bytes of each value.
    value_bytes: int


def connect(url: str, *, allow_plaintext: bool = False) -> Client:
    """Connects to the server at `url`, as in ``shm:///run/user/1000/farsight.sock`` or ``tcp://127.0.0.1:7474``.

    `allow_plaintext` connects over TCP to another machine, where whoever is on the way can read and change
    everything. Raises `ConnectError` if nobody answers there, `ValueError` for a URL that is none.
    """
    return Client(_native.connect(url, allow_plaintext))


class Client:
    """A client of one server, made by `connect`. Threads may share it; forked children may not.

    As a context manager it closes itself. Tables that were opened before keep their connection until they are
    gone.
    """

    def __init__(self, native: _native.Client) -> None:
        self._native = native

    @property
    def url(self) -> str:
        """The server's address, as it was given."""
        return self._native.url

    def create_table(self, name: str, value: DTypeLike | int, key: DTypeLike = np.uint64) -> Table:
        """Makes a table, or opens the one that is already defined so.

        `value` is the type of its values, or a number of bytes; a value has 8 to 256 B. `key` is uint64, int64,
        float64 or S8. The server knows the type of keys and the size of values; what the bytes of a value mean
        is for its clients to agree on.

        Raises `TableError` for a bad name and for a table of that name with another definition.
        """
        dtype = _convert.value_dtype(value)
        return Table(self._native.create_table(name, _convert.key_kind(key), dtype.itemsize), dtype)

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
        """All tables of the server."""
        return [
            TableInfo(name, _convert.KEY_DTYPES[kind], value_bytes)
            for name, kind, value_bytes in self._native.tables()
        ]

    def stats(self) -> dict[str, Any]:
        """The server's statistics: itself, and under ``tables`` the tree, model and memory of each table."""
        statistics: dict[str, Any] = json.loads(self._native.stats())
        return statistics

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
