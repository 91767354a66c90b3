"""Servers and memory nodes inside the Python process."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from types import TracebackType
from typing import ClassVar, Self

from . import _native


class _Listening:
    """What clients connect to, until it is shut down."""

    _native: _native.Server | _native.MemoryNode
    _started: ClassVar[type[_native.Server | _native.MemoryNode]]

    def __init__(
        self,
        socket: str | PathLike[str] | None = None,
        *,
        workers: int | None = None,
        table_memory_bytes: int | None = None,
        listen: Sequence[str] = (),
        allow_plaintext: bool = False,
    ) -> None:
        self._native = self._started(socket, workers, table_memory_bytes, list(listen), allow_plaintext)

    @property
    def url(self) -> str:
        """What clients connect to; of several addresses the best."""
        return self.urls[0]

    @property
    def urls(self) -> list[str]:
        """All addresses, the best first. Where the system chose a port (``tcp://127.0.0.1:0``), it is named."""
        return self._native.urls

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
        return f"farsight.{type(self).__name__}({self.url!r})"


class Server(_Listening):
    """A server with threads of its own, for tests and for programs that bring their own store.

    It listens at `socket` and at the addresses of `listen`, as in ``tcp://127.0.0.1:7474``; without either,
    where ``farsight serve`` does. `allow_plaintext` serves TCP to other machines, where anyone on the way can
    read and change everything. Tables are in memory, each takes at most `table_memory_bytes`, and they end with
    the server. As a context manager it stops at the end.

    Raises `ConnectError` if it cannot listen there, `ValueError` for a URL that is none.
    """

    _started = _native.Server


class MemoryNode(_Listening):
    """A memory node of a pool with threads of its own: it gives its memory to clients, which read and write it.

    Clients connect to all nodes of a pool, ``farsight.connect(f"{first.url},{second.url}")``, always in the same
    order. Arguments are those of `Server`; `table_memory_bytes` is what each table takes here at most. When one
    node stops, its part of every table is gone, and the pool with it.
    """

    _native: _native.MemoryNode
    _started = _native.MemoryNode

    def train(self, pool: str) -> None:
        """Trains the ROLEX tables of the pool at these addresses, until this node stops.

        One of a pool's nodes should; several may. A pool that nobody trains answers rightly, and gets slower
        while it grows.
        """
        self._native.train(pool)
