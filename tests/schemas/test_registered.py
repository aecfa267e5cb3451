"""Schemas of a registry's responses: the limits of what is fetched for a schema."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.schemas.errors import SchemaError
from raftlog.schemas.registered import read_registered
from raftlog.schemas.schema import MAX_REFERENCED_CHARS, MAX_REFERENCES

LARGE = MAX_REFERENCED_CHARS // 4


def referring(*numbers: int, text: str = "1") -> dict[str, Any]:
    references = [{"name": f"n{each}", "subject": "s", "version": each} for each in numbers]
    return {"schema": text, "references": references}


@pytest.mark.parametrize("is_chain", [False, True])
def test_references_are_not_fetched_beyond_their_limit(is_chain: bool) -> None:
    """The fifth is the first too many, also if each refers to the next. 100 large responses would fill the memory."""
    asked: list[str] = []

    def ask(path: str) -> dict[str, Any]:
        asked.append(path)
        return referring(*([len(asked) + 1] if is_chain else []), text="x" * LARGE)

    numbers = [1] if is_chain else range(1, 100)
    with pytest.raises(SchemaError, match=f"more than {MAX_REFERENCED_CHARS} characters"):
        read_registered(referring(*numbers), ask)
    assert len(asked) == 5


def test_as_many_references_as_are_allowed_are_read() -> None:
    """Each once, and after its own references."""

    def ask(path: str) -> dict[str, Any]:
        version = int(path.partition("/versions/")[2].partition("?")[0])
        return referring(version + 1, text=f"{version}")

    found = read_registered(referring(1), ask)
    assert [each.text for each in found.references] == [str(each) for each in range(MAX_REFERENCES, 0, -1)]
