"""Every operation against a dict, for each kind of key and several types of value."""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farsight
from conftest import Store

KEYS: dict[str, Callable[[random.Random], Any]] = {
    "uint64": lambda rng: rng.choice([0, 1, 2**63, 2**64 - 1, rng.randrange(200)]),
    "int64": lambda rng: rng.choice([-(2**63), -1, 0, 2**63 - 1, rng.randrange(-99, 99)]),
    "float64": lambda rng: rng.choice([-np.inf, np.inf, -0.5, 1e300, rng.randrange(200) / 8]),
    "S8": lambda rng: rng.choice([b"", b"zzzzzzzz", b"\x00\x01", str(rng.randrange(200)).encode()]),
}
TICK = np.dtype([("price", "<f8"), ("size", "<u4"), ("venue", "S4")])
VALUES: dict[str, tuple[Any, Callable[[random.Random], Any]]] = {
    "float64": (np.float64, lambda rng: np.float64(rng.random())),
    "bytes": (13, lambda rng: rng.randbytes(12) + b"\x00"),
    "structured": (TICK, lambda rng: np.array((rng.random(), rng.randrange(99), b"XETR"), TICK)[()]),
    "complex": (np.complex128, lambda rng: np.complex128(complex(rng.random(), -1))),
}


@pytest.fixture(params=["xstore", "rolex", "xstore-d"])
def store(request: pytest.FixtureRequest, pool_urls: Callable[[str], str]) -> Store:
    """Each engine, where its tables are."""
    engine: str = request.param
    return Store(request.getfixturevalue("url") if engine == "xstore" else pool_urls(engine), engine)


def test_the_cache_obeys_a_budget(new_table: Any, store: Store) -> None:
    table = new_table(np.uint64)
    keys = np.arange(0, 40_000, 2, np.uint64)
    table.load(keys, keys)
    has_budget = store.engine != "rolex"
    assert table.set_cache_bytes(1 << 20) == has_budget
    values, found = table.multi_get(keys)
    assert found.all() and (values == keys).all()
    stats = table.cache_stats()
    assert stats["memory_bytes"] > 0
    assert not has_budget or stats["memory_bytes"] <= 1 << 20
    assert table.set_cache_bytes(None) == has_budget


@pytest.mark.parametrize("key_type", KEYS)
@pytest.mark.parametrize("value_type", VALUES)
def test_operations_agree_with_a_dict(new_table: Any, key_type: str, value_type: str) -> None:
    dtype, new_value = VALUES[value_type]
    new_key = KEYS[key_type]
    table = new_table(dtype, key=key_type)
    seed = f"{key_type} {value_type}"
    rng, model = random.Random(seed), {}
    for _ in range(400):
        key, value = new_key(rng), new_value(rng)
        match rng.randrange(5):
            case 0:
                assert table.insert(key, value) == (key not in model), seed
                model.setdefault(key, value)
            case 1:
                assert table.update(key, value) == (key in model), seed
                if key in model:
                    model[key] = value
            case 2:
                before = table.version(key) or 0
                assert table.put(key, value) > before, seed
                model[key] = value
            case 3:
                assert table.remove(key) == (model.pop(key, None) is not None), seed
            case _:
                assert table.get(key) == model.get(key), seed
                assert (key in table) == (key in model), seed
    assert len(model) > 20, "the run has stored too little to say anything"
    wanted = np.array(list(model) + [new_key(rng) for _ in range(50)], key_type)
    values, found = table.multi_get(wanted)
    assert values.dtype == table.dtype and found.dtype == np.bool_
    for key, value, there in zip(wanted.tolist(), values, found, strict=True):
        assert there == (key in model), seed
        assert not there or value.tobytes() == np.array(model[key], table.dtype).tobytes(), seed
    keys, values = table.scan(limit=10_000)
    assert keys.tolist() == sorted(model), seed
    assert [value.tobytes() for value in values] == [
        np.array(model[key], table.dtype).tobytes() for key in sorted(model)
    ]


def test_many_at_once(new_table: Any) -> None:
    table = new_table(np.int64)
    keys = np.arange(0, 20_000, 2)
    assert table.load(keys, -keys) == len(keys)
    assert table.insert_many([0, 1, 2, 3], [9, 9, 9, 9]).tolist() == [False, True, False, True]
    assert table.update_many([0, 5, 2], [7, 7, 7]).tolist() == [True, False, True]
    assert table.remove_many([4, 5]).tolist() == [True, False]
    table.put_many([6, 7], [60, 70])
    values, found, versions = table.multi_get(np.arange(10), versions=True)
    assert values.tolist() == [7, 9, 7, 9, 0, 0, 60, 70, -8, 0]
    assert found.tolist() == [True, True, True, True, False, False, True, True, True, False]
    assert ((versions > 0) == found).all()
    assert table.multi_get([])[0].shape == (0,)
    values[0] = 1  # The arrays are the caller's own.


def test_values_go_where_the_caller_wants_them(new_table: Any) -> None:
    table = new_table(np.uint64)
    keys = np.arange(0, 2_000, 2, np.uint64)
    table.put_many(keys, keys + 7)
    room = np.full(2_000, 99, np.uint64)
    values, found, versions = table.multi_get(np.arange(2_000), versions=True, out=room)
    assert values is room and (found == (np.arange(2_000) % 2 == 0)).all() and ((versions > 0) == found).all()
    assert (room[::2] == keys + 7).all() and not room[1::2].any(), "values of absent keys are zeros"
    # Also where the call before left others.
    assert table.multi_get(keys)[0].all()
    values, found = table.multi_get(keys + 1)
    assert not found.any() and not values.any()
    piece = room[11:14]
    assert table.multi_get([2, 3, 4], out=piece)[0] is piece
    assert room[10:15].tolist() == [17, 9, 0, 11, 21], "nothing beside it"
    kept = room.copy()
    for out, error in [
        (np.zeros(3, np.int64), TypeError),
        ([0, 0, 0], TypeError),
        (np.zeros(2, np.uint64), ValueError),
        (np.zeros((3, 1), np.uint64), ValueError),
        (room[:6:2], ValueError),
    ]:
        with pytest.raises(error, match="out "):
            table.multi_get([2, 3, 4], out=out)
    room.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        table.multi_get([2, 3, 4], out=room[:3])
    assert (room == kept).all()


@pytest.mark.parametrize("value_type", VALUES)
def test_every_type_of_values_goes_there(new_table: Any, value_type: str) -> None:
    dtype, new_value = VALUES[value_type]
    table = new_table(dtype)
    rng = random.Random(value_type)
    for key in range(0, 40, 2):
        table.put(key, new_value(rng))
    expected, _ = table.multi_get(range(40))
    room = np.frombuffer(bytearray(b"\xaa" * expected.nbytes), table.dtype)
    table.multi_get(range(40), out=room)
    assert room.tobytes() == expected.tobytes() and expected[1::2].tobytes().count(0) == expected[1::2].nbytes


def test_scans(new_table: Any) -> None:
    table = new_table(np.uint64, key=np.int64)
    keys = np.arange(-10_000, 10_000)
    table.load(keys, keys + 10_000)
    for start, stop, limit in [(None, None, 7), (-5, 5, 100), (-5, 5, 3), (9_999, None, 9), (5, 5, 9)]:
        found, values = table.scan(start, stop, limit=limit)
        expected = keys[(start or -10_000) + 10_000 : (10_000 if stop is None else stop) + 10_000][:limit]
        assert (found == expected).all() and len(found) == len(expected)
        assert (values == expected + 10_000).all()
    assert len(table.scan(limit=100_000)[0]) == 20_000, "longer than a page"
    assert table.scan()[0].tolist() == keys.tolist(), "all of them"
    assert table.scan(-9_000, 9_000)[0].tolist() == list(range(-9_000, 9_000))
    assert len(table.scan(limit=0)[0]) == 0


def test_scans_in_reverse(new_table: Any) -> None:
    table = new_table(np.uint64, key=np.int64)
    keys = np.arange(-10_000, 10_000)
    table.load(keys, keys + 10_000)
    assert table.scan(reverse=True)[0].tolist() == keys[::-1].tolist(), "several pages"
    found, values = table.scan(-5, 5, limit=3, reverse=True)
    assert found.tolist() == [4, 3, 2] and values.tolist() == [10_004, 10_003, 10_002]
    assert len(table.scan(5, 5, reverse=True)[0]) == 0
    assert len(table.scan(None, -20_000, reverse=True)[0]) == 0
    assert table.scan(9_998, reverse=True)[0].tolist() == [9_999, 9_998]


def test_neighbours(new_table: Any) -> None:
    table = new_table(np.float64, key=np.float64)
    days = np.array([-2.5, 0.0, 1.5, 4.0])
    table.put_many(days, days * 10)
    of = [-3.0, -2.5, -1.0, 1.5, 9.0]
    for name, expected in {
        "floor": [None, -2.5, -2.5, 1.5, 4.0],
        "lower": [None, None, -2.5, 0.0, 4.0],
        "ceiling": [-2.5, -2.5, 0.0, 1.5, None],
        "higher": [-2.5, 0.0, 0.0, 4.0, None],
    }.items():
        found, values, exist = getattr(table, name)(of)
        assert exist.tolist() == [key is not None for key in expected], name
        assert found[exist].tolist() == [key for key in expected if key is not None], name
        assert (values[exist] == found[exist] * 10).all() and (values[~exist] == 0).all(), name
    assert table.floor([])[0].shape == (0,)


def test_conditional_writes(new_table: Any) -> None:
    table = new_table(np.float64)
    assert table.compare_and_set(1, 0, 0.5)
    assert not table.compare_and_set(1, 0, 0.6)
    version = table.version(1)
    assert table.compare_and_set(1, version, 0.75) and not table.compare_and_set(1, version, 0.8)
    assert table.compare_and_set_value(1, 0.75, 1.0) and not table.compare_and_set_value(1, 0.75, 2.0)
    assert (table.swap(1, 3.0), table.swap(2, 4.0), table.swap(2, 5.0, -1.0)) == (1.0, None, 4.0)
    assert not table.remove_if(1, version) and table.remove_if(1, table.version(1)) and 1 not in table
    with pytest.raises(TypeError, match="fetch_add wants int64 or uint64"):
        table.fetch_add(1, 1)

    keys = np.arange(100)
    assert table.compare_and_set_many(keys, np.zeros(100, np.uint64), keys / 2).sum() == 99
    old, found = table.swap_many(keys[:5] * 50, np.ones(5))
    assert old.tolist() == [0.0, 25.0, 0.0, 0.0, 0.0] and found.tolist() == [True, True, False, False, False]
    _, _, versions = table.multi_get(keys, versions=True)
    versions = np.where(keys % 2 == 0, versions, versions + np.uint64(1))
    assert table.remove_if_many(keys, versions).tolist() == (keys % 2 == 0).tolist()
    assert table.compare_and_set_value_many([1, 3], [0.5, 9.0], [7.0, 7.0]).tolist() == [True, False]
    assert table.compare_and_set_many([], [], []).tolist() == []
    with pytest.raises(ValueError, match="2 keys and 1 versions"):
        table.remove_if_many([1, 2], [3])

    raw = new_table(12)
    assert raw.swap(1, b"twelve bytes") is None and raw.swap(1, b"other bytes.") == b"twelve bytes"


def test_counters(new_table: Any) -> None:
    table = new_table(np.int64)
    assert [table.fetch_add(7, addend) for addend in (5, -7, 2**63 - 1)] == [0, 5, -2]
    assert table[7] == 2**63 - 3
    assert table.fetch_add_many([7, 7, 8], [3, 1, 1]).tolist() == [2**63 - 3, -(2**63), 0]
    unsigned = new_table(np.uint64)
    assert unsigned.fetch_add(1, -1) == 0 and unsigned[1] == 2**64 - 1


def test_as_a_mapping(new_table: Any) -> None:
    table = new_table(8)
    table[1] = b"8 bytes."
    assert table[1] == b"8 bytes." and 1 in table and 2 not in table
    with pytest.raises(KeyError, match="2"):
        table[2]
    del table[1]
    with pytest.raises(KeyError, match="1"):
        del table[1]
    assert table.get(1) is None and table.get(1, b"other") == b"other"


def test_threads_share_a_table(new_table: Any) -> None:
    table = new_table(np.uint64)
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            keys = np.arange(first, first + 2_000)
            for _ in range(5):
                table.put_many(keys, keys * 3)
                values, found = table.multi_get(keys)
                assert found.all() and (values == keys * 3).all()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(10_000 * index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(table.scan(limit=100_000)[0]) == 8_000


def test_tables_and_statistics(client: farsight.Client, new_table: Any, store: Store) -> None:
    table = new_table(16, key="S8")
    table.put(b"a", bytes(16))
    infos = {info.name: info for info in client.tables()}
    assert infos[table.name] == (table.name, np.dtype("S8"), 16, "", False)
    statistics = client.stats()
    if store.engine == "xstore":
        mine = [one for one in statistics["tables"] if one["info"]["definition"]["name"] == table.name]
        assert mine[0]["part"]["tree"]["pairs"] == 1
    else:
        for place, node in enumerate(statistics["nodes"]):
            tables = [one["info"] for one in node["tables"]]
            mine = [one for one in tables if one["definition"]["name"] == table.name]
            assert mine[0]["place"]["index"] == place
    again = client.table(table.name)
    assert again.dtype == np.dtype("V16") and again.key_dtype == np.dtype("S8")
    assert again[b"a"] == bytes(16)
    assert client.table(table.name, TICK)[b"a"]["size"] == 0
    assert table.name in repr(table) and client.url in repr(client)


def test_over_tcp_and_over_shared_memory(tmp_path: Path) -> None:
    with farsight.Server(tmp_path / "s", table_memory_bytes=1 << 20, listen=["tcp://127.0.0.1:0"]) as server:
        near, far = (farsight.connect(url) for url in server.urls)
        assert far.url.startswith("tcp://")
        keys = np.arange(0, 3000, 3, dtype=np.uint64)
        far.create_table("t", np.uint64).put_many(keys, keys + 1)
        for client in (near, far):
            values, found = client.table("t", np.uint64).multi_get(np.arange(3000, dtype=np.uint64))
            assert found.sum() == 1000
            assert (values[found] == keys + 1).all()


def test_a_server_with_a_directory_has_its_tables_again(tmp_path: Path) -> None:
    keys = np.arange(0, 3000, 3, dtype=np.uint64)
    data = tmp_path / "data"

    def start(**options: Any) -> farsight.Server:
        return farsight.Server(tmp_path / "s", table_memory_bytes=1 << 20, data=data, **options)

    with start() as server, farsight.connect(server.url) as client:
        client.create_table("t", np.uint64).put_many(keys[:500], keys[:500] + 1)
        client.snapshot()
        client.table("t", np.uint64).put_many(keys[500:], keys[500:] + 1)
    with start(ack="memory") as server, farsight.connect(server.url) as client:
        found_keys, values = client.table("t", np.uint64).scan(limit=2000)
        assert (found_keys == keys).all() and (values == keys + 1).all()


def test_tables_are_dropped_renamed_and_swapped(client: farsight.Client, store: Store) -> None:
    def make(name: str, value: float) -> farsight.Table:
        table = client.create_table(name, np.float64, engine=store.engine)
        table.put_many(np.arange(10), np.full(10, value))
        return table

    def eventually(reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not reached():
            assert time.monotonic() < deadline, "a session follows its name within a second"

    old, new = make("shop", 1.0), make("shop-new", 2.0)
    client.swap_tables("shop", "shop-new")
    eventually(lambda: old.get(3) == 2.0)
    eventually(lambda: new.get(3) == 1.0)
    client.rename_table("shop-new", "shop-old")
    assert {"shop", "shop-old"} <= {info.name for info in client.tables()}
    client.drop_table("shop-old")
    client.drop_table("shop")

    def is_gone() -> bool:
        try:
            old.get(3)
        except farsight.ReadError as error:
            return "dropped or renamed" in str(error)
        return False

    eventually(is_gone)
    with pytest.raises(farsight.WriteError, match="dropped or renamed"):
        old.put(3, 4.0)
    for change in (
        lambda: client.drop_table("shop"),
        lambda: client.rename_table("shop", "other"),
        lambda: client.swap_tables("shop", "other"),
    ):
        with pytest.raises(farsight.TableError, match="no table is called"):
            change()
