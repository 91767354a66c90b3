"""Servers inside the Python process."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from types import TracebackType
from typing import Literal, Self

from . import _native


class Server:
    """A server with threads of its own, for tests and for programs that bring their own store.

    It listens at `socket` and at the addresses of `listen`, as in ``tcp://127.0.0.1:7474``; without either,
    where ``farsight serve`` does. `allow_plaintext` serves TCP to other machines, where whoever is on the way can
    read and change everything. Tables are in memory, each takes at most `table_memory_bytes`, and the process takes
    at most `memory_limit_bytes`: without that nine tenths of what the machine has left. As a context manager it
    stops at the end.

    Tables end with the server, unless it keeps them in the directory `data`: a server that is started there later
    has them. Then a write is acknowledged once it is ``"durable"``, or with `ack` ``"memory"`` before that: a crash
    of the machine may lose the last 50 ms. Tables are of XStore then, and of one node.

    Several servers are a pool: the client that makes the first table connects to all of them,
    ``farsight.connect(f"{first.url},{second.url}")``, and others to any of them. When one of them stops, its part of
    every table is gone, and the pool with it. Nodes can be told instead, all in one order: each string of `pool` has
    the addresses of all nodes, this one among them, with commas between, and is of one fabric. Or they meet in an
    etcd, as in ``cluster="etcd://10.0.0.9:2379/prices"``, which is what clients connect to, too. The first table is
    made once so many `nodes` are registered there.

    Raises `ConnectError` if it cannot listen there, `data` is another server's, or etcd does not register it, and
    `ValueError` for a URL or an `ack` that is none.
    """

    def __init__(
        self,
        socket: str | PathLike[str] | None = None,
        *,
        workers: int | None = None,
        table_memory_bytes: int | None = None,
        memory_limit_bytes: int | None = None,
        data: str | PathLike[str] | None = None,
        ack: Literal["durable", "memory"] = "durable",
        listen: Sequence[str] = (),
        allow_plaintext: bool = False,
        pool: Sequence[str] = (),
        cluster: str | None = None,
        nodes: int = 1,
    ) -> None:
        if isinstance(pool, str):
            raise TypeError("pool has a string for each fabric, in a list")
        found = None if cluster is None else (cluster, nodes)
        self._native = _native.Server(
            socket,
            workers,
            table_memory_bytes,
            memory_limit_bytes,
            data,
            ack,
            list(listen),
            allow_plaintext,
            list(pool),
            found,
        )

    @property
    def url(self) -> str:
        """What clients connect to; of several addresses the best."""
        return self.urls[0]

    @property
    def urls(self) -> list[str]:
        """All addresses, the best first. Where the system chose a port (``tcp://127.0.0.1:0``), it is named."""
        return self._native.urls

    def train(self, pool: str) -> None:
        """Trains the ROLEX tables of the pool at these addresses, until this server stops.

        A server alone trains its tables by itself. Of several nodes one should be told to; several may. A pool
        that nobody trains answers rightly, and gets slower while it grows.
        """
        self._native.train(pool)

    def shutdown(self) -> None:
        """Stops it: its clients' calls fail within a second. Nothing if it is stopped."""
        self._native.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"farsight.Server({self.url!r})"
