"""How `raftlog schema` prints what the registry returns."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.cli.http_api import HttpApi
from raftlog.cli.rows import Form
from raftlog.cli.schema import get


class Registry(HttpApi):
    """A registry with one schema of Protobuf, indented by tabs."""

    def ask(self, method: str, path: str, body: Any = None, *, accepted: int | None = None) -> Any:
        assert (method, path) == ("GET", "/schemas/ids/7")
        return {"schemaType": "PROTOBUF", "schema": "message A {\n\tstring b = 1;\x1b\n}"}


def test_a_schemas_tabs_are_shown_as_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    """Other control characters are escaped: another user wrote the schema."""
    get(Registry(), "7", form=Form.TABLE)
    assert capsys.readouterr().out.endswith("\nmessage A {\n    string b = 1;\\x1b\n}\n")
