"""A server inside the Python process."""

from __future__ import annotations

from os import PathLike
from types import TracebackType

from . import _native


class Server:
    """A server with threads of its own, for tests and for programs that bring their own store.

    It listens at `socket` (by default where ``farsight serve`` does) and keeps tables in memory, each at most
    `table_memory_bytes`. As a context manager it stops at the end. Its tables end with it.

    Raises `ConnectError` if it cannot listen there.
    """

    def __init__(
        self,
        socket: str | PathLike[str] | None = None,
        *,
        workers: int | None = None,
        table_memory_bytes: int | None = None,
    ) -> None:
        self._native = _native.Server(socket, workers, table_memory_bytes)

    @property
    def url(self) -> str:
        """What clients connect to."""
        return self._native.url

    def shutdown(self) -> None:
        """Stops it: its clients' calls fail within a second. Nothing if it is stopped."""
        self._native.shutdown()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"farsight.Server({self.url!r})"
