"""The lines that the documents show."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
DOCUMENTS = [HERE.parent / "README.md", HERE.parent.parent.parent / "README.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=["package", "project"])
def test_five_lines_read_and_write_a_running_server(document: Path, url: str) -> None:
    found = re.search(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    assert found, f"{document} shows no Python"
    lines = found[1].strip().splitlines()
    assert len(lines) == 5
    names: dict[str, object] = {}
    code = re.sub(r'"shm://[^"]*"', repr(url), "\n".join(lines))
    assert url in code
    exec(compile(code.replace('"prices"', repr(f"prices_{DOCUMENTS.index(document)}")), str(document), "exec"), names)
    values, found_mask = names["values"], names["found"]
    assert values.tolist() == [2.0, 3.0, 0.0]  # type: ignore[attr-defined]
    assert found_mask.tolist() == [True, True, False]  # type: ignore[attr-defined]
