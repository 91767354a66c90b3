"""Random writes of single pairs, beside the same of a dict."""

import random
from collections.abc import Callable
from typing import Any


def random_writes(
    table: Any, chance: random.Random, count: int, key_of: Callable[[], Any], value_of: Callable[[], Any]
) -> dict[Any, Any]:
    """Does `count` writes, each with a look at what they return. Returns what the table should hold."""
    model: dict[Any, Any] = {}
    for _ in range(count):
        key, value = key_of(), value_of()
        before = model.get(key)
        match chance.randrange(8):
            case 0:
                assert table.insert(key, value) == (before is None)
                model.setdefault(key, value)
                continue
            case 1:
                assert table.update(key, value) == (before is not None)
                if before is not None:
                    model[key] = value
                continue
            case 2:
                assert table.remove(key) == (before is not None)
                model.pop(key, None)
                continue
            case 3:
                assert table.swap(key, value) == before
            case 4:
                version = table.version(key) or 0
                assert not table.compare_and_set(key, version + 1, value)
                assert table.compare_and_set(key, version, value)
            case 5:
                other = next(other for other in iter(value_of, None) if other != before)
                assert not table.compare_and_set_value(key, other, value)
                # An absent key has no value, not an empty one.
                expected = value if before is None else before
                assert table.compare_and_set_value(key, expected, value) == (before is not None)
                if before is None:
                    continue
            case 6:
                version = table.version(key) or 0
                assert not table.remove_if(key, version + 1)
                assert table.remove_if(key, version) == (before is not None)
                model.pop(key, None)
                continue
            case _:
                table.put(key, value)
        model[key] = value
    return model
