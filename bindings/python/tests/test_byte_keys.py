"""Tables whose keys are bytes of any length, and texts."""

from __future__ import annotations

import math
import multiprocessing
import pickle
import random
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

import farsight
import numpy as np
import pytest

from conftest import Serving, Store
from random_writes import random_writes

#: Bytes of a key and its value at most.
PAIR_BYTES_MAX = 16_232
#: Keys of which one is easily taken for another.
ADVERSARIAL = [
    b"",
    b"\0",
    b"\0\0",
    b"a",
    b"a\0",
    b"\0a",
    b"8 bytes.",
    b"8 bytes.\0",
    b"\xff" * 8,
    b"\xff\xfe is no UTF-8",
    bytes(16_000),
    bytes(15_999) + b"\1",
    bytes(range(256)) * 62,
]
#: Types of values, and how a random one is made.
VALUES: dict[str, tuple[Any, Callable[[random.Random], Any]]] = {
    "bytes": (bytes, lambda chance: chance.randbytes(chance.choice([0, 1, 8, 200]))),
    "str": (str, lambda chance: "ü" * chance.randrange(9)),
    "int64": (np.int64, lambda chance: chance.randrange(-9, 9)),
    "raw": (13, lambda chance: chance.randbytes(12) + b"\0"),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of these tests' own: statistics look at the whole index of each table, and others want them."""
    serving = Serving(tmp_path_factory.mktemp("byte-keys"))
    yield serving.url
    serving.kill()


@pytest.fixture
def store(url: str) -> Store:
    return Store(url, "flexkv")


@pytest.mark.parametrize("value_type", VALUES)
def test_no_key_is_taken_for_another(new_table: Any, value_type: str) -> None:
    value, value_of = VALUES[value_type]
    table, chance = new_table(value, keys=bytes), random.Random(value_type)
    expected = {key: value_of(chance) for key in ADVERSARIAL}
    for key in ADVERSARIAL:
        assert key not in table and table.get(key) is None and table.get(key, "none") == "none"
        table[key] = expected[key]
    for key in ADVERSARIAL:
        assert key in table and table[key] == expected[key]
        del table[key]
        assert key not in table
        with pytest.raises(KeyError):
            del table[key]
        with pytest.raises(KeyError):
            table[key]
        table[key] = expected[key]


@pytest.mark.parametrize("value_type", VALUES)
def test_random_writes_agree_with_a_dict(new_table: Any, value_type: str) -> None:
    value, value_of = VALUES[value_type]
    table, chance = new_table(value, keys=bytes), random.Random(value_type)
    keys = ADVERSARIAL + [b"key %d" % number for number in range(40)]
    model = random_writes(table, chance, 1_000, lambda: chance.choice(keys), lambda: value_of(chance))
    assert {key: table[key] for key in keys if key in table} == model
    got = table.multi_get(keys)
    if isinstance(table, farsight.ValuesTable):
        assert got == [model.get(key) for key in keys]
    else:
        values = [stored.tobytes() for stored in got[0]] if value_type == "raw" else got[0].tolist()
        assert dict(pair for pair, found in zip(zip(keys, values), got[1]) if found) == model


def test_many_keys_are_a_list(new_table: Any) -> None:
    table = new_table(bytes, keys=bytes)
    keys = [b"k" * (number % 50) + b"%d" % number for number in range(5_000)]
    values = [key[::-1] * (number % 3) for number, key in enumerate(keys)]
    table.put_many(keys, values)
    assert table.multi_get(keys) == values
    assert table.multi_get([keys[7], b"absent", keys[7]]) == [values[7], None, values[7]] and table.multi_get([]) == []
    found, versions = table.multi_get([b"absent", keys[0]], versions=True)
    assert found == [None, values[0]] and versions.tolist() == [0, table.version(keys[0])]
    assert table.insert_many([keys[0], b"new", b"new"], [b"x", b"y", b"z"]).tolist() == [False, True, False]
    assert table.update_many([keys[0], b"absent"], [b"x", b"y"]).tolist() == [True, False]
    assert table.multi_get([keys[0], b"new", b"absent"]) == [b"x", b"y", None]
    assert table.remove_many([keys[0], keys[0], b"absent"]).tolist() == [True, False, False]
    assert table.swap_many([b"new", keys[0]], [b"1", b"2"]) == [b"y", None]
    versions = table.multi_get([b"new", keys[1]], versions=True)[1]
    stored = table.compare_and_set_many([b"new", keys[1], b"absent"], [int(versions[0]), 1, 0], [b"a", b"b", b"c"])
    assert stored.tolist() == [True, False, True]
    done = table.compare_and_set_value_many([b"new", b"absent"], [b"a", b"d"], [b"A", b"D"])
    assert done.tolist() == [True, False] and table.multi_get([b"new", b"absent"]) == [b"A", b"c"]
    assert table.remove_if_many([b"new", b"absent"], [1, table.version(b"absent")]).tolist() == [False, True]


def test_counters_by_name(new_table: Any) -> None:
    table = new_table(np.int64, keys=str)
    assert [table.fetch_add("größe", addend) for addend in (5, -7, 0)] == [0, 5, -2]
    assert table.fetch_add_many(["größe", "b", "b"], [1, 10, 1]).tolist() == [-2, 0, 10]
    values, found, versions = table.multi_get(["b", "größe", "c"], versions=True)
    assert values.tolist() == [11, -1, 0] and found.tolist() == [True, True, False]
    assert versions.tolist() == [table.version("b"), table.version("größe"), 0]
    room = np.empty(2, np.int64)
    assert table.multi_get(["b", "c"], out=room)[0] is room and room.tolist() == [11, 0]
    assert table.compare_and_set_value_many(["b", "c"], [11, 0], [1, 1]).tolist() == [True, False]
    assert table.compare_and_set("c", 0, 3) and table.swap("c", 4) == 3 and table.remove_if("c", table.version("c"))
    raw = new_table(bytes, keys=bytes)
    assert raw.fetch_add(b"n", 3) == 0 and raw[b"n"] == (3).to_bytes(8, "little")


def test_texts_are_stored_as_their_utf_8(client: farsight.Client, new_table: Any) -> None:
    texts = new_table(str, keys=str)
    words = ["", "a", "größe", "長い" * 1_000, "\0", unicodedata.normalize("NFD", "größe"), "🦀"]
    texts.put_many(words, words)
    assert texts.multi_get(words) == words and all(texts[word] == word for word in words)
    raw = client.table(texts.name, keys=bytes)
    assert raw.multi_get([word.encode() for word in words]) == words
    either = client.table(texts.name)
    assert either["größe"] == either["größe".encode()] == "größe"
    assert either.multi_get(["a", b"a", bytearray(b"a"), "b", b"\xff"]) == ["a", "a", "a", None, None]
    assert [table.key_dtype for table in (texts, raw, either)] == [np.dtype(str), np.dtype(bytes), np.dtype(bytes)]
    with pytest.raises(TypeError, match=f'a key is bytes, table "{texts.name}" is open for keys of str'):
        texts[b"a"]
    with pytest.raises(TypeError, match="a key is bytearray, .* of str"):
        texts.get(bytearray(b"a"))
    with pytest.raises(TypeError, match="a key is str, .* of bytes"):
        raw.put_many([b"a", "b"], ["x", "y"])
    assert raw.get(b"b") is None
    for table in (texts, either):
        with pytest.raises(UnicodeEncodeError):
            table.put("\ud800", "x")
        with pytest.raises(UnicodeEncodeError):
            table.multi_get(["a", "\ud800"])


def test_whatever_holds_bytes_is_a_key(new_table: Any) -> None:
    table = new_table(bytes, keys=bytes)
    changing = bytearray(b"key")
    table[changing] = b"1"
    changing[0] = 0
    assert table[memoryview(b"a key!")[2:5]] == b"1" and changing not in table
    array = np.array([b"one", b"three"])
    table.put_many(array, [b"1", b"3"])
    assert table.multi_get(key for key in [b"one", b"two", array[1]]) == [b"1", None, b"3"]
    model = {b"four": b"4", b"five": b"5"}
    table.put_many(model.keys(), model.values())
    assert table.multi_get(tuple(model)) == [b"4", b"5"]
    # Every second byte, which lie apart.
    assert table[memoryview(b"fxoxuxrx")[::2]] == b"4"


def test_too_long_pairs_are_refused(new_table: Any) -> None:
    table = new_table(bytes, keys=bytes)
    longest = b"k" * (PAIR_BYTES_MAX - 10)
    table[longest] = b"ten bytes."
    assert table[longest] == b"ten bytes." and table.swap(longest, b"TEN BYTES.") == b"ten bytes."
    for write in (
        lambda: table.put(longest + b"k", b"ten bytes."),
        lambda: table.insert(bytes(100_000), b""),
        lambda: table.put_many([b"first", longest], [b"", b"eleven byte"]),
        lambda: table.compare_and_set(longest, 1, b"eleven byte"),
        lambda: table.swap(longest, b"eleven byte"),
    ):
        with pytest.raises(ValueError, match=f"{PAIR_BYTES_MAX} B together at most"):
            write()
    assert b"first" not in table and table[longest] == b"TEN BYTES."
    # No table has such a key.
    assert table.multi_get([bytes(100_000), longest]) == [None, b"TEN BYTES."] and table.get(bytes(1 << 20)) is None


@pytest.mark.parametrize("key", [1, None, 1.5, ["a"], np.uint64(7), np.arange(2)], ids=repr)
def test_other_keys_are_refused(new_table: Any, key: Any) -> None:
    table = new_table(bytes, keys=bytes)
    for call in (
        lambda: table.get(key),
        lambda: table.put(key, b""),
        lambda: key in table,
        lambda: table.multi_get([b"a", key]),
        lambda: table.put_many([b"a", key], [b"", b""]),
        lambda: table.swap(key, b""),
    ):
        with pytest.raises(TypeError, match="a key is .*, table .* is open for keys of bytes"):
            call()
    assert b"a" not in table


def test_one_key_is_not_many(new_table: Any) -> None:
    table = new_table(bytes, keys=bytes)
    for one in (b"key", bytearray(b"key"), memoryview(b"key"), "key"):
        with pytest.raises(TypeError, match="keys are many, in a list, not one"):
            table.multi_get(one)
    with pytest.raises(TypeError):
        table.multi_get(7)
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        table.put_many([b"a", b"b"], [b"x"])
    with pytest.raises(ValueError, match="1 keys and 2 versions"):
        table.remove_if_many([b"a"], [1, 2])


ORDERED: dict[str, Callable[[Any], Any]] = {
    "scan": lambda table: table.scan(b"a", b"b", limit=1, reverse=True),
    "scan_keys": lambda table: table.scan_keys(),
    "count": lambda table: table.count(b"a"),
    "floor": lambda table: table.floor([b"a"]),
    "higher": lambda table: table.higher([b"a"]),
    "slice": lambda table: table[b"a" : b"b"],
    "iteration": iter,
    "load": lambda table: table.load([b"a"], [b"8 bytes."]),
    "to_pandas": lambda table: table.to_pandas(),
    "to_arrow": lambda table: table.to_arrow(),
}


@pytest.mark.parametrize("what", ORDERED)
def test_what_needs_an_order_is_refused_by_name(new_table: Any, what: str) -> None:
    for table in (new_table(bytes, keys=bytes), new_table(8, keys=str)):
        advice = {"load": "Use put_many", "iteration": r"pairs\(\) yields all"}.get(what, "Get pairs by their keys")
        with pytest.raises(TypeError, match=f'table "{table.name}" has no {what}: its keys are bytes.*{advice}'):
            ORDERED[what](table)


def test_pairs_have_no_order_and_no_number(new_table: Any) -> None:
    table = new_table(bytes, keys=bytes)
    for walk in (table.keys, table.values, table.items):
        with pytest.raises(TypeError, match="has no iteration"):
            walk()
    with pytest.raises(TypeError, match="keeps no count of its keys"):
        len(table)
    assert table, "a table is no empty list"


def test_a_table_knows_that_its_keys_are_bytes(client: farsight.Client, new_table: Any) -> None:
    # The engine is chosen by the keys.
    users = client.create_table("users_by_name", str, keys=bytes)
    users[b"ada"] = "Lovelace"
    assert client.create_table("users_by_name", str, keys=str)["ada"] == "Lovelace"
    visits = new_table(np.int64, keys=bytes)
    assert repr(users) == "farsight.ValuesTable('users_by_name', key=bytes, value=str)"
    assert repr(client.table(visits.name, keys=str)) == f"farsight.Table({visits.name!r}, key=str, value=int64)"
    assert users.value_bytes_max == 16_216
    listed = {info.name: info for info in client.tables()}
    assert listed["users_by_name"][1:] == (np.dtype(bytes), 16_216, "str", True)
    assert listed[visits.name][1:] == (np.dtype(bytes), 8, "<i8", False)
    with pytest.raises(farsight.TableError, match="with bytes keys.*with u64 keys"):
        client.create_table("users_by_name", str)
    client.create_table("words_by_number", str)
    with pytest.raises(TypeError, match="'words_by_number' has keys of uint64, not of bytes"):
        client.table("words_by_number", keys=bytes)


def test_pairs_end_by_themselves(client: farsight.Client) -> None:
    sessions = client.create_table("sessions", str, keys=str, ttl=3600)
    sessions["usual"] = "an hour"
    sessions.put("brief", "at once", ttl=0)
    sessions.put("lasting", "for ever", ttl=math.inf)
    usual, brief, lasting = (sessions.ttl(name) for name in ("usual", "brief", "lasting"))
    assert brief is None and lasting == math.inf
    assert usual is not None and 1800 < usual <= 3600
    assert sessions.get("brief") is None and "brief" not in sessions
    assert sessions.set_ttl("usual", 0) and not sessions.set_ttl("brief", 5)
    assert sessions.multi_get(["usual", "brief", "lasting"]) == [None, None, "for ever"]
    client.drop_table("sessions")


def test_what_cannot_be_is_refused(client: farsight.Client) -> None:
    make: Any = client.create_table
    with pytest.raises(farsight.TableError, match="xstore have eight bytes.*flexkv"):
        make("none", str, keys=bytes, engine="xstore")
    with pytest.raises(farsight.TableError, match="16216 B, not 16217 B"):
        make("none", str, keys=bytes, value_bytes_max=16_217)
    with pytest.raises(TypeError, match="say key or keys, not both"):
        make("none", str, np.int64, keys=bytes)
    with pytest.raises(TypeError, match="keys=bytes, keys=str"):
        make("none", str, bytes)
    with pytest.raises(TypeError, match="bytes or str, not .*int"):
        make("none", str, keys=int)
    with pytest.raises(TypeError, match="have no order, so a sample of them says nothing"):
        make("none", str, keys=bytes, sample=[b"a"])
    with pytest.raises(farsight.TableError, match="none"):
        client.table("none")


def _value_of(table: Any) -> Any:
    """What another process finds."""
    return table["größe"]


def test_tables_are_pickled_with_their_keys(client: farsight.Client, new_table: Any) -> None:
    for value, stored in ((str, "groß"), (np.int64, 7)):
        table = new_table(value, keys=str)
        table["größe"] = stored
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.map(_value_of, [table, client.table(table.name)]) == [stored, stored]
        copy = pickle.loads(pickle.dumps(table))
        assert copy is not table and copy["größe"] == stored and repr(copy) == repr(table)
        with pytest.raises(TypeError, match="of str"):
            copy[b"bytes"]


def test_a_pools_replicas_have_each_pair(pool_urls: Callable[[str], str]) -> None:
    with farsight.connect(pool_urls("flexkv")) as client:
        table = client.create_table("replicated_names", str, keys=str, replicas=2, memory_bytes=8 << 20)
        table.put_many(["ada", "größe"], ["Lovelace", "groß"])
        assert table.multi_get(["größe", "ada", "x"]) == ["groß", "Lovelace", None]
        definitions = [node["tables"][0]["info"]["definition"] for node in client.stats()["nodes"]]
        assert [definition["replicas"] for definition in definitions] == [2, 2]


def test_a_full_table_refuses(client: farsight.Client) -> None:
    table = client.create_table("few_names", bytes, keys=bytes, memory_bytes=2 << 20)
    keys = [b"name %d" % number for number in range(10_000)]
    with pytest.raises(farsight.RefusedError, match="of 10000 writes were not done, .* its region is full"):
        table.put_many(keys, [bytes(1_000)] * len(keys))
    held = [key for key, value in zip(keys, table.multi_get(keys)) if value is not None]
    assert 0 < len(held) < len(keys)


def test_keys_are_lent_for_a_call_and_no_longer(new_table: Any) -> None:
    table = new_table(bytes, keys=bytes)
    keys = [b"a key of its own %d" % number for number in range(100)]
    text = "".join(["a ", "text"])
    before = [sys.getrefcount(key) for key in keys]
    table.put_many(keys, keys)
    assert table.multi_get(keys) == keys and table[keys[0]] == keys[0]
    for wrong in ([*keys, 7], [*keys, text]):
        with pytest.raises(TypeError):
            table.multi_get(wrong)
    with pytest.raises(ValueError):
        table.put_many([*keys, bytes(20_000)], [b""] * 101)
    del wrong
    assert [sys.getrefcount(key) for key in keys] == before


def test_threads_share_a_table_and_change_their_lists(new_table: Any) -> None:
    table = new_table(bytes, keys=bytes)
    keys = [b"shared %d" % number for number in range(500)]
    table.put_many(keys, keys)
    asked, failed = list(keys), list[BaseException]()

    def change() -> None:
        for _ in range(300):
            asked.clear()
            asked.extend(bytes(bytearray(key)) for key in keys)

    def read() -> None:
        try:
            for _ in range(300):
                # What was in the list at an instant, whole: the rest of a call sees no change of it.
                found = table.multi_get(asked)
                assert found == keys[: len(found)]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for work in (change, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def test_frames_have_a_column_of_names(new_table: Any) -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    texts = new_table(str, keys=str)
    texts.put_frame(pandas.DataFrame({"name": ["größe", "a"], "text": ["groß", "b"]}), key="name")
    texts.put_frame(pyarrow.table({"key": ["c"], "value": ["d"]}))
    assert texts.multi_get(["größe", "a", "c"]) == ["groß", "b", "d"]
    visits = new_table(np.int64, keys=bytes)
    visits.put_frame(pandas.DataFrame({"visits": [3, 4]}, index=pandas.Index([b"x", b"y"], name="name")), key="name")
    assert visits.multi_get([b"x", b"y"])[0].tolist() == [3, 4]
