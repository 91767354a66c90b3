"""Real servers and memory nodes for the tests: the program of FARSIGHT_PROGRAM, or the one on the path."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import farsight

#: More than a start takes on a loaded machine.
PATIENCE_S = 30
#: Memory nodes of a pool.
MEMORY_NODES = 2


class Serving:
    """A server process that answers."""

    def __init__(self, directory: Path) -> None:
        program = os.environ.get("FARSIGHT_PROGRAM") or shutil.which("farsight")
        assert program, "set FARSIGHT_PROGRAM to the program `farsight`, or put it on the path"
        self.url = f"shm://{directory}/farsight.sock"
        self.process = subprocess.Popen(
            [program, "serve", "--socket", f"{directory}/farsight.sock", "--memory", "64M"]
        )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert self.process.poll() is None, "the server ended"
            try:
                farsight.connect(self.url).close()
                return
            except farsight.ConnectError:
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)


class Store(NamedTuple):
    """Where tables are made, and of which engine."""

    url: str
    engine: str


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server that all tests share."""
    serving = Serving(tmp_path_factory.mktemp("server"))
    yield serving.url
    serving.kill()


@pytest.fixture(scope="session")
def pool_urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """The addresses of the pool that all tests of an engine share."""
    nodes: dict[str, list[Serving]] = {}

    def urls(engine: str) -> str:
        if engine not in nodes:
            nodes[engine] = [Serving(tmp_path_factory.mktemp("node")) for _ in range(MEMORY_NODES)]
        return ",".join(node.url for node in nodes[engine])

    yield urls
    for node in (node for pool in nodes.values() for node in pool):
        node.kill()


@pytest.fixture
def store(url: str) -> Store:
    """A server's tables; who tests more engines has a fixture of this name."""
    return Store(url, "xstore")


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A server of the test's own."""
    own = Serving(tmp_path)
    yield own
    own.kill()


@pytest.fixture
def client(store: Store) -> Iterator[farsight.Client]:
    with farsight.connect(store.url) as client:
        yield client


@pytest.fixture
def new_table(
    client: farsight.Client, store: Store, request: pytest.FixtureRequest
) -> Callable[..., farsight.Table]:
    """Makes tables that no other test has."""
    made = 0

    def make(*arguments: object, **options: object) -> farsight.Table:
        nonlocal made
        made += 1
        name = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
        return client.create_table(f"{name[-50:]}_{made}", *arguments, engine=store.engine, **options)

    return make
