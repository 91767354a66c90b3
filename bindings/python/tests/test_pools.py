"""Pools of memory nodes: how they are made, what is refused, and what is seen of a node that is gone."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import farsight
from conftest import PATIENCE_S

ENGINES = ["rolex", "xstore-d"]


class Pool:
    """Memory nodes in this process."""

    def __init__(self, directory: Path, table_memory_bytes: int = 16 << 20) -> None:
        self.directory, self.bytes = directory, table_memory_bytes
        self.nodes = [self.start(node) for node in range(2)]
        self.url = ",".join(node.url for node in self.nodes)

    def start(self, node: int) -> farsight.Server:
        return farsight.Server(self.directory / f"node-{node}", table_memory_bytes=self.bytes)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    with ExitStack() as stack:
        pool = Pool(tmp_path)
        stack.callback(lambda: [node.shutdown() for node in pool.nodes])
        yield pool


@pytest.mark.parametrize("engine", ENGINES)
def test_nodes_in_this_process(pool: Pool, engine: str) -> None:
    client = farsight.connect(pool.url)
    keys = np.arange(0, 30_000, 3)
    table = client.create_table("t", np.int64, engine=engine, sample=keys[::100])
    table.load(keys, -keys)
    table.put_many(keys + 1, keys)
    values, found = table.multi_get(np.arange(30_000))
    assert found.tolist() == [True, True, False] * 10_000
    assert (values[::3] == -keys).all() and (values[1::3] == keys).all()
    assert len(table.scan(limit=100_000)[0]) == 20_000
    nodes = client.stats()["nodes"]
    used = [node["tables"][0]["leaves"]["used"] for node in nodes]
    assert min(used) > max(used) / 4, "both nodes hold leaves"
    # Another client finds it, and a definition of its own is refused.
    other = farsight.connect(pool.url)
    assert other.table("t", np.int64)[30] == -30
    with pytest.raises(farsight.TableError, match=engine):
        other.create_table("t", np.int64, engine="rolex" if engine == "xstore-d" else "xstore-d")


def test_a_node_trains(pool: Pool) -> None:
    pool.nodes[1].train(pool.url)
    client = farsight.connect(pool.url)
    table = client.create_table("t", np.uint64)
    keys = np.arange(5_000, dtype=np.uint64)
    table.put_many(keys, keys)
    deadline = time.monotonic() + PATIENCE_S
    while client.stats()["nodes"][0]["tables"][0]["meta"]["used"] == 1:
        assert time.monotonic() < deadline, "nobody trains"
        time.sleep(0.01)
    assert table.multi_get(keys)[1].all()
    pool.nodes[1].shutdown()
    with pytest.raises(farsight.ConnectError, match="stopped"):
        pool.nodes[1].train(pool.url)


@pytest.mark.parametrize("engine", ["xstore", *ENGINES])
def test_any_number_of_nodes_has_every_engine(pool: Pool, tmp_path: Path, engine: str) -> None:
    keys = np.arange(1_000, dtype=np.uint64)
    with farsight.Server(tmp_path / "alone.sock", table_memory_bytes=pool.bytes) as alone:
        for url in (pool.url, alone.url):
            table = farsight.connect(url).create_table("every", np.uint64, engine=engine, sample=keys)
            table.load(keys, keys)
            assert (table.multi_get(keys)[0] == keys).all()
            del table


def test_engines_that_there_are_not(client: farsight.Client) -> None:
    with pytest.raises(ValueError, match="xstore, rolex, xstore-d, flexkv"):
        client.create_table("t", 8, engine="redis")  # type: ignore[arg-type]


def test_a_table_without_order(pool: Pool) -> None:
    table = farsight.connect(pool.url).create_table("hashed", np.uint64, engine="flexkv")
    keys = np.arange(5_000, dtype=np.uint64)
    table.put_many(keys, keys + 1)
    assert (table.multi_get(keys)[0] == keys + 1).all()
    assert table.remove(7) and not table.multi_get(keys[7:8])[1].any()
    with pytest.raises(farsight.Error, match="flexkv keeps no order.*use xstore"):
        table.scan(0, 10)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_full_pool_refuses_writes_and_answers_reads(tmp_path: Path, engine: str) -> None:
    pool = Pool(tmp_path, 1 << 16)
    table = farsight.connect(pool.url).create_table("small", 256, engine=engine)
    keys, values = np.arange(10_000), np.zeros(10_000, "V256")
    with pytest.raises(farsight.RefusedError, match="of 10000 writes were not done, .* its region is full"):
        table.put_many(keys, values)
    stored = table.scan(limit=10_000)[0]
    assert 0 < len(stored) < 10_000
    assert table.multi_get(keys)[1].sum() == len(stored)
    with pytest.raises(farsight.RefusedError, match="its region is full"):
        table.put_many(np.arange(10_000, 20_000), values)
    for node in pool.nodes:
        node.shutdown()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_node_that_lost_its_memory_is_named(pool: Pool, engine: str) -> None:
    client = farsight.connect(pool.url)
    keys = np.arange(1_000, dtype=np.uint64)
    table = client.create_table("t", np.uint64, engine=engine, sample=keys)
    table.put_many(keys, keys)
    lost = str(pool.directory / "node-1")
    pool.nodes[1].shutdown()
    pool.nodes[1] = pool.start(1)
    deadline = time.monotonic() + PATIENCE_S
    with pytest.raises(farsight.ReadError, match=f"{lost} was started again"):
        # Over shared memory a node's memory outlives it until its end is noticed.
        while time.monotonic() < deadline:
            assert table.multi_get(keys)[1].all()
    with pytest.raises(farsight.WriteError, match=f"{lost} was started again"):
        table.put(1, 2)
    with pytest.raises(farsight.TableError, match=f"{lost} was started again"):
        client.create_table("u", 8)


def test_nodes_that_are_told_their_pool(tmp_path: Path) -> None:
    urls = [f"shm://{tmp_path}/node-{node}" for node in range(2)]
    addresses = ",".join(urls)
    nodes = [farsight.Server(url.removeprefix("shm://"), pool=[addresses]) for url in urls]
    # One address leads to all of them, also for who makes the first table.
    with farsight.connect(urls[1]) as client:
        client.create_table("t", np.int64, engine="rolex").put(1, 2)
        assert len(client.stats()["nodes"]) == 2
    for node in nodes:
        node.shutdown()
    with pytest.raises(TypeError, match="a string for each fabric"):
        farsight.Server(tmp_path / "other", pool=addresses)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[str]:
    """The address of an etcd of the test's own."""
    if shutil.which("etcd") is None:
        assert os.environ.get("FARSIGHT_CI") != "1", "no etcd: apt-get install etcd-server"
        pytest.skip("this needs etcd (apt-get install etcd-server)")
    with socket.create_server(("127.0.0.1", 0)) as client, socket.create_server(("127.0.0.1", 0)) as peer:
        ports = [listener.getsockname()[1] for listener in (client, peer)]
    clients, peers = (f"http://127.0.0.1:{port}" for port in ports)
    arguments = ["--listen-client-urls", clients, "--advertise-client-urls", clients, "--listen-peer-urls", peers]
    arguments += ["--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"]
    with open(tmp_path / "etcd.log", "w") as log:
        process = subprocess.Popen(["etcd", "--data-dir", str(tmp_path / "etcd"), *arguments], stdout=log, stderr=log)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", ports[0]), 1).close()
            break
        except OSError:
            assert time.monotonic() < deadline and process.poll() is None, "etcd does not answer"
            time.sleep(0.05)
    yield f"127.0.0.1:{ports[0]}"
    process.kill()
    process.wait(PATIENCE_S)


def test_nodes_that_meet_under_a_name(tmp_path: Path, etcd: str) -> None:
    name = f"etcd://{etcd}/prices"
    nodes = [
        farsight.Server(listen=["tcp://127.0.0.1:0"], cluster=name, nodes=2) for _ in range(2)
    ]
    with farsight.connect(name) as client:
        client.create_table("t", np.int64, engine="rolex").put(1, 2)
        assert len(client.stats()["nodes"]) == 2
        assert client.table("t")[1] == 2
    for node in nodes:
        node.shutdown()
    both = {"pool": ["tcp://127.0.0.1:1"], "cluster": name}
    with pytest.raises(farsight.ConnectError, match="not both"):
        farsight.Server(listen=["tcp://127.0.0.1:0"], **both)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="etcd://"):
        farsight.Server(tmp_path / "other", cluster="prices")
