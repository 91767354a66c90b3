"""Keys a second of `multi_get` from Python beside the same from Rust, by one process and by several at once.

cargo build --release --example reader
python benches/beside_rust.py PATH/OF/reader [KEYS [ROUNDS [BATCH]]]

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

import numpy as np

import farsight

#: Processes that read at once.
CROWDS = (1, 2, 8)
#: Batches that the processes of one way read in a round, all together.
BATCHES = 4_000
#: numpy starts threads that wait for work by spinning, which is no part of a read.
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


def read(url: str, path: str, batch: int, way: str) -> None:
    """A process that reads as its parent tells it to, as reader.rs does."""
    words = np.fromfile(path, np.uint64)
    words = words[: len(words) // batch * batch].reshape(-1, batch)
    batches = list(words)
    with farsight.connect(url) as client:
        table = client.table("t", np.uint64)
        room = np.empty(batch, np.uint64) if way == "out" else None
        at = 0
        print("ready", flush=True)
        for line in sys.stdin:
            begun = time.perf_counter_ns()
            for _ in range(int(line)):
                _, found = table.multi_get(batches[at], out=room)
                assert found.all()
                at = (at + 1) % len(batches)
            print(time.perf_counter_ns() - begun, flush=True)


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
        return read(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    reader = sys.argv[1]
    count, rounds, batch = (int(text) for text in (sys.argv[2:] + ["1000000", "15", "1024"][len(sys.argv) - 2 :])[:3])
    rng = np.random.default_rng(1)
    keys = np.unique(rng.integers(0, 2**64 - 1, count, np.uint64))
    with tempfile.TemporaryDirectory() as directory, farsight.Server(f"{directory}/s") as server:
        path = f"{directory}/keys"
        rng.permutation(keys).tofile(path)
        with farsight.connect(server.url) as client:
            client.create_table("t", np.uint64).load(keys, ~keys)
        shared = [server.url, path, str(batch)]
        python = [sys.executable, __file__, "--read", *shared]
        ways = {"Rust": [reader, *shared], "Python": [*python, "new"], "Python, out=": [*python, "out"]}
        crowds = {(way, size): Crowd(command, size) for size in CROWDS for way, command in ways.items()}
        rates: dict[tuple[str, int], list[float]] = {which: [] for which in crowds}
        for number in range(rounds + 1):
            for which, crowd in crowds.items():
                rate = crowd.batches_a_second(BATCHES) * batch / 1e6
                # The first fills caches.
                rates[which] += [rate] if number > 0 else []
        for crowd in crowds.values():
            crowd.end()
    cores = len(os.sched_getaffinity(0))
    print(f"{len(keys):,} keys, 8 B values, batches of {batch}, medians of {rounds} rounds, {cores} cores")
    print(f"{'':>14} {'processes':>9} {'M keys/s':>9} {'of Rust':>8} {'of one':>7}")
    for (way, size), measured in rates.items():
        of_rust = statistics.median(a / b for a, b in zip(measured, rates["Rust", size], strict=True))
        of_one = statistics.median(a / b for a, b in zip(measured, rates[way, 1], strict=True))
        print(f"{way:>14} {size:>9} {statistics.median(measured):>9.2f} {of_rust:>8.2f} {of_one:>7.2f}")


if __name__ == "__main__":
    main()
