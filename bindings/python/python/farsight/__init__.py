"""Farsight: an in-memory, ordered key-value store whose clients read the data where it lies.

    import farsight, numpy as np
    client = farsight.connect("shm:///run/user/1000/farsight.sock")
    roots = client.create_table("roots", np.float64)
    roots.put_many(np.arange(1000), np.sqrt(np.arange(1000)))
    values, found = roots.multi_get([4, 9, 5000])

Values of any length are `bytes` or `str`: ``client.create_table("texts", str)``. So are keys of any length, in tables
without an order: ``client.create_table("users", str, keys=str)``.

`connect` takes the addresses of a pool's memory nodes, too, with commas between. Keys and values travel as numpy
arrays. Calls release the interpreter's lock; tables may be shared by threads.
A client belongs to the process that connected it, not to its forked children.
"""

from ._client import Client, connect
from ._native import (
    ConnectError,
    Error,
    IndeterminateError,
    LoadError,
    ReadError,
    RefusedError,
    TableError,
    WriteError,
    __version__,
)
from ._server import Server
from ._table import Table
from ._values_table import ValuesTable

__all__ = [
    "Client",
    "ConnectError",
    "Error",
    "IndeterminateError",
    "LoadError",
    "ReadError",
    "RefusedError",
    "Server",
    "Table",
    "TableError",
    "ValuesTable",
    "WriteError",
    "__version__",
    "connect",
]
