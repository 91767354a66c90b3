"""A real `farsight serve` for the tests: the program of FARSIGHT_PROGRAM, or the one on the path."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import farsight

#: More than a start takes on a loaded machine.
PATIENCE_S = 30


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


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server that all tests share."""
    serving = Serving(tmp_path_factory.mktemp("server"))
    yield serving.url
    serving.kill()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A server of the test's own."""
    own = Serving(tmp_path)
    yield own
    own.kill()


@pytest.fixture
def client(url: str) -> Iterator[farsight.Client]:
    with farsight.connect(url) as client:
        yield client


@pytest.fixture
def new_table(client: farsight.Client, request: pytest.FixtureRequest) -> Callable[..., farsight.Table]:
    """Makes tables that no other test has."""
    made = 0

    def make(*arguments: object, **options: object) -> farsight.Table:
        nonlocal made
        made += 1
        name = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
        return client.create_table(f"{name[-50:]}_{made}", *arguments, **options)

    return make
