"""Keys a second of `multi_get` from Python beside the same from Rust, by one process and by several at once.

cargo build --release --example reader
python benches/beside_rust.py PATH/OF/reader [KEYS [ROUNDS [BATCH [TABLE]]]]

TABLE is ``words`` (keys and values of eight bytes), ``bytes`` (keys of 16 B and values of eight), or ``values`` (keys
and values of 16 B, and tables where these may have any length).

All read the same batches of one table over shared memory. In each round each way comes once, so that what else
the machine does meets all alike. Rates are medians of rounds, in wall time; those of several processes are of all
together. Quotients are medians of each round's own.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import farsight

#: Processes that read at once.
CROWDS = (1, 2, 8)
#: Batches that the processes of one way read in a round, all together.
BATCHES = 4_000
#: numpy starts threads that wait for work by spinning, which is no part of a read.
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


class Kind(NamedTuple):
    """What a table is, and the ways in which Python reads it."""

    key_bytes: int
    value: Any
    definition: dict[str, Any]
    ways: dict[str, str]


KINDS = {
    "words": Kind(8, np.uint64, {}, {"Python": "new", "Python, out=": "out"}),
    "bytes": Kind(16, np.uint64, {"keys": bytes}, {"Python": "new", "Python, out=": "out"}),
    "values": Kind(16, bytes, {"keys": bytes}, {"Python": "list"}),
}


def batches_of(path: str, batch: int, kind: Kind) -> list[Any]:
    """The keys of a file, as calls take them."""
    if kind.key_bytes == 8:
        words = np.fromfile(path, np.uint64)
        return list(words[: len(words) // batch * batch].reshape(-1, batch))
    stored, size = Path(path).read_bytes(), kind.key_bytes
    keys = [stored[at : at + size] for at in range(0, len(stored), size)]
    return [keys[at : at + batch] for at in range(0, len(keys) - batch + 1, batch)]


def read(url: str, path: str, batch: int, kind: Kind, way: str) -> None:
    """A process that reads as its parent tells it to, as reader.rs does."""
    batches = batches_of(path, batch, kind)
    with farsight.connect(url) as client:
        table = client.table("t", kind.value)
        room = np.empty(batch, np.uint64) if way == "out" else None
        at = 0
        print("ready", flush=True)
        for line in sys.stdin:
            begun = time.perf_counter_ns()
            for _ in range(int(line)):
                if way == "list":
                    assert None not in table.multi_get(batches[at])
                else:
                    _, found = table.multi_get(batches[at], out=room)
                    assert found.all()
                at = (at + 1) % len(batches)
            print(time.perf_counter_ns() - begun, flush=True)


def fill(client: farsight.Client, kind: Kind, count: int, path: str) -> int:
    """Makes the table, and a file of its keys in another order. Returns how many there are."""
    rng = np.random.default_rng(1)
    keys = np.unique(rng.integers(0, 2**64 - 1, count, np.uint64))
    table = client.create_table("t", kind.value, **kind.definition)
    asked = rng.permutation(keys)
    if kind.key_bytes == 8:
        table.load(keys, ~keys)
        asked.tofile(path)
        return len(keys)
    # Half of a key is a name that all have, as names of users have it.
    named = [b"tenant-1" + key.tobytes() for key in asked]
    Path(path).write_bytes(b"".join(named))
    table.put_many(named, ~asked if kind.value is np.uint64 else named)
    return len(keys)


class Crowd:
    """Processes that read one way at once."""

    def __init__(self, command: list[str], count: int) -> None:
        self.children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
            for _ in range(count)
        ]
        for child in self.children:
            assert child.stdout is not None and child.stdout.readline() == "ready\n", command

    def batches_a_second(self, batches: int) -> float:
        """Lets each read its part of `batches`, from the same moment on."""
        each = batches // len(self.children)
        for child in self.children:
            assert child.stdin is not None
            child.stdin.write(f"{each}\n")
            child.stdin.flush()
        slowest = max(int(child.stdout.readline()) for child in self.children if child.stdout is not None)
        return each * len(self.children) / slowest * 1e9

    def end(self) -> None:
        for child in self.children:
            child.communicate()
            assert child.returncode == 0, child.args


def main() -> None:
    if sys.argv[1] == "--read":
        url, path, batch, name, way = sys.argv[2:]
        return read(url, path, int(batch), KINDS[name], way)
    reader = sys.argv[1]
    count, rounds, batch, name = sys.argv[2:] + ["1000000", "15", "1024", "words"][len(sys.argv) - 2 :]
    kind = KINDS[name]
    with tempfile.TemporaryDirectory() as directory, farsight.Server(f"{directory}/s") as server:
        path = f"{directory}/keys"
        with farsight.connect(server.url) as client:
            stored = fill(client, kind, int(count), path)
        shared = [server.url, path, batch]
        python = [sys.executable, __file__, "--read", *shared, name]
        ways = {"Rust": [reader, *shared, str(kind.key_bytes)]}
        ways |= {way: [*python, how] for way, how in kind.ways.items()}
        crowds = {(way, size): Crowd(command, size) for size in CROWDS for way, command in ways.items()}
        rates: dict[tuple[str, int], list[float]] = {which: [] for which in crowds}
        for number in range(int(rounds) + 1):
            for which, crowd in crowds.items():
                rate = crowd.batches_a_second(BATCHES) * int(batch) / 1e6
                # The first fills caches.
                rates[which] += [rate] if number > 0 else []
        for crowd in crowds.values():
            crowd.end()
    cores = len(os.sched_getaffinity(0))
    print(f"{stored:,} keys, table {name}, batches of {batch}, medians of {rounds} rounds, {cores} cores")
    print(f"{'':>14} {'processes':>9} {'M keys/s':>9} {'of Rust':>8} {'of one':>7}")
    for (way, size), measured in rates.items():
        of_rust = statistics.median(a / b for a, b in zip(measured, rates["Rust", size], strict=True))
        of_one = statistics.median(a / b for a, b in zip(measured, rates[way, 1], strict=True))
        print(f"{way:>14} {size:>9} {statistics.median(measured):>9.2f} {of_rust:>8.2f} {of_one:>7.2f}")


if __name__ == "__main__":
    main()
