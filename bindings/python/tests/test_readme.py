"""The lines that the documents show."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farsight

HERE = Path(__file__).resolve().parent
DOCUMENTS = [HERE.parent / "README.md", HERE.parent.parent.parent / "README.md"]


def shown(document: Path) -> list[list[str]]:
    """The lines of each piece of Python."""
    return [piece.strip().splitlines() for piece in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)]


def test_keys_of_any_length_are_a_dicts(url: str) -> None:
    lines = shown(DOCUMENTS[0])[2]
    names: dict[str, Any] = {"client": farsight.connect(url), "np": np}
    exec("\n".join(lines), names)
    assert names["users"].multi_get(["ada@example.org", "nobody"]) == ["Ada Lovelace", None]
    assert names["visits"][b"ada@example.org"] == 1


def run(document: Path, lines: list[str], url: str, table: str) -> None:
    assert len(lines) == 5
    names: dict[str, object] = {}
    code = re.sub(r'"shm://[^"]*"', repr(url), "\n".join(lines))
    assert url in code
    assert '"roots"' in code
    exec(compile(code.replace('"roots"', repr(table)), str(document), "exec"), names)
    values, found_mask = names["values"], names["found"]
    assert values.tolist() == [2.0, 3.0, 0.0]  # type: ignore[attr-defined]
    assert found_mask.tolist() == [True, True, False]  # type: ignore[attr-defined]


@pytest.mark.parametrize("document", DOCUMENTS, ids=["package", "project"])
def test_five_lines_read_and_write_a_running_server(document: Path, url: str) -> None:
    run(document, shown(document)[0], url, f"prices_{DOCUMENTS.index(document)}")


@pytest.mark.parametrize("engine", ["rolex", "xstore-d"])
def test_five_lines_read_and_write_a_pool(engine: str, pool_urls: Callable[[str], str]) -> None:
    lines = [line.replace('"rolex"', repr(engine)) for line in shown(DOCUMENTS[0])[1]]
    assert any(repr(engine) in line for line in lines)
    run(DOCUMENTS[0], lines, pool_urls(engine), f"prices_{engine}")
