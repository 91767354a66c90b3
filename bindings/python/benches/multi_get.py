"""Keys a second of `multi_get`, beside a loop over a dict with the same keys in the same run.

python benches/multi_get.py [KEYS [ROUNDS]]
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import farsight


def seconds(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    rng = np.random.default_rng(1)
    keys = np.unique(rng.integers(0, 2**64 - 1, count, np.uint64))
    asked = rng.permutation(keys)
    with tempfile.TemporaryDirectory() as directory, farsight.Server(f"{directory}/s") as server:
        with farsight.connect(server.url) as client:
            table = client.create_table("t", np.uint64)
            load_s = seconds(lambda: table.load(keys, ~keys))
            model = dict(zip(keys.tolist(), (~keys).tolist(), strict=True))
            singles = asked.tolist()
            few = singles[:20_000]
            values, found = table.multi_get(asked)
            assert found.all() and (values == ~asked).all()
            ways: dict[str, tuple[int, Callable[[], Any]]] = {
                "multi_get": (len(asked), lambda: table.multi_get(asked)),
                "scan": (len(keys), lambda: table.scan(limit=len(keys))),
                "put_many": (len(asked), lambda: table.put_many(asked, ~asked)),
                "get, one by one": (len(few), lambda: [table.get(key) for key in few]),
                "dict, one by one": (len(singles), lambda: [model[key] for key in singles]),
            }
            took: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(rounds):
                for way, (_, call) in ways.items():
                    took[way].append(seconds(call))
    print(f"{len(keys):,} keys, 8 B values, medians of {rounds}; load {len(keys) / load_s / 1e6:.2f} M/s")
    for way, (done, _) in ways.items():
        print(f"{way:>18} {done / statistics.median(took[way]) / 1e6:8.2f} M keys/s")


if __name__ == "__main__":
    main()
