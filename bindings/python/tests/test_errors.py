"""What goes wrong with servers, and which exception says so."""

import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farsight
from conftest import Serving


def test_one_class_is_above_all_others() -> None:
    kinds = ["ConnectError", "TableError", "ReadError", "WriteError", "LoadError"]
    assert all(issubclass(getattr(farsight, kind), farsight.Error) for kind in kinds)
    assert issubclass(farsight.IndeterminateError, farsight.WriteError)
    assert issubclass(farsight.RefusedError, farsight.WriteError)


def test_nobody_to_connect_to(tmp_path: Path) -> None:
    with pytest.raises(farsight.ConnectError, match="farsight serve"):
        farsight.connect(f"shm://{tmp_path}/none.sock")
    with pytest.raises(ValueError, match="needs a scheme"):
        farsight.connect("farsight.sock")


def test_another_users_server_is_told_nothing(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    path, other = f"{tmp_path}/other.sock", 54_321
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        # Whose server it is the kernel notes when it begins to listen.
        os.seteuid(other)
        try:
            listener.listen()
        finally:
            os.seteuid(0)
        with pytest.raises(farsight.ConnectError, match="uid 54321"):
            farsight.connect(f"shm://{path}")
        silent = threading.Thread(target=lambda: listener.accept()[0].close())
        silent.start()
        with pytest.raises(farsight.ConnectError, match="handshake"):
            farsight.connect(f"shm://{path}", server_uids=[other])
        silent.join()


def test_tables_are_refused_by_name_and_definition(client: farsight.Client, new_table: Any) -> None:
    table = new_table(np.float64)
    with pytest.raises(farsight.TableError, match="none_such"):
        client.table("none_such")
    with pytest.raises(farsight.TableError):
        client.create_table(table.name, np.complex128)
    with pytest.raises(farsight.TableError):
        client.create_table("a bad name", np.float64)


def test_loads_want_order_and_an_empty_table(new_table: Any) -> None:
    table = new_table(np.uint64)
    with pytest.raises(farsight.LoadError, match="ascending"):
        table.load([1, 1], [0, 0])
    assert len(table.scan()[0]) == 0
    table.put(1, 1)
    with pytest.raises(farsight.LoadError):
        table.load([2, 3], [0, 0])


def test_a_full_table_refuses(tmp_path: Path) -> None:
    with farsight.Server(tmp_path / "s", table_memory_bytes=1 << 16) as server:
        with farsight.connect(server.url) as client:
            table = client.create_table("small", 256)
            values = np.zeros(10_000, "V256")
            with pytest.raises(farsight.RefusedError, match="of 10000 writes were not done, .* its region is full"):
                table.put_many(np.arange(10_000), values)
            assert len(table.scan(limit=10_000)[0]) > 0, "the others were done"
            with pytest.raises(farsight.RefusedError, match="region is full"):
                table.put(1 << 40, bytes(256))


def test_a_server_of_too_little_memory_refuses(tmp_path: Path) -> None:
    with farsight.Server(tmp_path / "s", table_memory_bytes=1 << 30, memory_limit_bytes=192 << 20) as server:
        with farsight.connect(server.url) as client:
            table = client.create_table("large", 256)
            keys, values = np.arange(1 << 20), np.zeros(1 << 20, "V256")
            with pytest.raises(farsight.RefusedError, match="did not take .* a higher memory limit"):
                table.put_many(keys, values)


def test_a_server_says_what_it_cannot_keep(tmp_path: Path, client: farsight.Client) -> None:
    with pytest.raises(ValueError, match="ack is .*got \"later\""):
        farsight.Server(tmp_path / "s", data=tmp_path / "data", ack="later")  # type: ignore[arg-type]
    with farsight.Server(tmp_path / "s", data=tmp_path / "data"):
        with pytest.raises(farsight.ConnectError):
            farsight.Server(tmp_path / "other", data=tmp_path / "data")
    with pytest.raises(farsight.TableError, match="in memory alone: start it with --data DIR"):
        client.snapshot()


def test_a_dead_server_is_noticed(serving: Serving) -> None:
    client = farsight.connect(serving.url)
    table = client.create_table("t", np.float64)
    table.put(1, 2.5)
    serving.kill()
    with pytest.raises(farsight.ReadError):
        for _ in range(1_000_000):
            table.get(1)
    with pytest.raises(farsight.WriteError):
        table.put(1, 3.5)
    with pytest.raises(farsight.Error):
        client.stats()


def test_a_client_goes_on_in_the_servers_next_life(serving: Serving, tmp_path: Path) -> None:
    client = farsight.connect(serving.url)
    table = client.create_table("t", np.float64)
    table.put(1, 2.5)
    serving.kill()
    again = Serving(tmp_path)
    try:
        # Tables live in memory.
        with pytest.raises(farsight.ReadError, match="has no table"):
            table.get(1)
        client.create_table("t", np.float64)
        assert table.get(1) is None
        table.put(1, 3.5)
        assert table[1] == 3.5
    finally:
        again.kill()


def test_a_closed_client_says_so(url: str) -> None:
    with farsight.connect(url) as client:
        table = client.create_table("closed", np.float64)
    with pytest.raises(farsight.ConnectError, match="closed"):
        client.tables()
    client.close()
    table.put(1, 0.5)
    assert table[1] == 0.5, "tables keep their connection"


def test_an_embedded_server_ends(tmp_path: Path) -> None:
    server = farsight.Server(tmp_path / "s")
    with pytest.raises(farsight.ConnectError):
        farsight.Server(tmp_path / "s")
    farsight.connect(server.url).close()
    server.shutdown()
    server.shutdown()
    with pytest.raises(farsight.ConnectError):
        farsight.connect(server.url)


def test_signals_are_handled_during_scans_and_writes(new_table: Any) -> None:
    table = new_table(np.int64)
    keys = np.arange(500_000)
    table.load(keys, keys)
    handled, ended, main = threading.Event(), threading.Event(), threading.get_ident()
    times = 0

    def handle(*_: Any) -> None:
        nonlocal times
        times += 1
        handled.set()

    def send() -> None:
        while not ended.is_set():
            handled.clear()
            signal.pthread_kill(main, signal.SIGUSR1)
            handled.wait()

    before = signal.signal(signal.SIGUSR1, handle)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        for work in (table.scan, table.scan_keys, table.count, lambda: table.put_many(keys, keys)):
            most = 0
            for _ in range(200):
                first = times
                work()
                most = max(most, times - first)
                if most > 3:
                    break
            # Without a look at them during the call, one is handled when it ends, and few around it.
            assert most > 3, f"{work}: {most} signals handled"
    finally:
        ended.set()
        handled.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)


def test_other_threads_run_during_a_call(new_table: Any) -> None:
    table = new_table(np.uint64)
    keys = np.arange(500_000, dtype=np.uint64)
    table.load(keys, keys)
    counted, ended = 0, False
    during: list[int] = []

    def work() -> None:
        nonlocal ended
        for _ in range(50):
            before = counted
            table.multi_get(keys)
            during.append(counted - before)
            if during[-1]:
                break
        ended = True

    # No thread gives way by itself: what counts meanwhile counts in a call that let go of the lock.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        worker = threading.Thread(target=work)
        worker.start()
        while not ended:
            counted += 1
            if counted % 1000 == 0:
                threading.Event().wait(0.0001)
    finally:
        sys.setswitchinterval(interval)
    worker.join()
    assert during[-1] > 0, f"nobody else ran during {len(during)} calls"
