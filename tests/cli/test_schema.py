"""How `raftlog schema` prints what the registry returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import HttpApi
from raftlog.cli.rows import Form
from raftlog.cli.schema import check, delete, get, register, versions


class Registry(HttpApi):
    """A registry with one schema of Protobuf, indented by tabs."""

    def ask(self, method: str, path: str, body: Any = None, *, accepted: int | None = None) -> Any:
        assert (method, path) == ("GET", "/schemas/ids/7")
        return {"schemaType": "PROTOBUF", "schema": "message A {\n\tstring b = 1;\x1b\n}"}


def test_a_schemas_tabs_are_shown_as_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    """Other control characters are escaped: another user wrote the schema."""
    get(Registry(), "7", form=Form.TABLE)
    assert capsys.readouterr().out.endswith("\nmessage A {\n    string b = 1;\\x1b\n}\n")


@pytest.mark.parametrize("version", ["", "1"])
@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            "subject 'a' was soft deleted; set permanent=true to delete it permanently",
            "subject 'a' was soft deleted; --permanent deletes it permanently",
        ),
        (
            "Subject 'a' was soft deleted.Set permanent=true to delete permanently",
            "Subject 'a' was soft deleted; --permanent deletes it permanently",
        ),
    ],
    ids=["raftlog", "Confluent"],
)
def test_a_second_deletion_names_the_option_for_it(version: str, said: str, line: str) -> None:
    """The registry names the parameter of its own API. Other versions that are there do not hide that."""

    class Refusing(HttpApi):
        def ask(self, method: str, path: str, body: Any = None, *, accepted: int | None = None) -> Any:
            if method == "GET":
                return [2]
            raise Failure(said, exits.NOT_FOUND)

    with pytest.raises(Failure) as raised:
        delete(Refusing(), "a", version=version)
    assert (str(raised.value), raised.value.code) == (line, exits.NOT_FOUND)


def test_the_versions_as_json_name_their_subject(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of several subjects can be put together. The table has the name in the command above it."""

    class One(HttpApi):
        def ask(self, method: str, path: str, body: Any = None, *, accepted: int | None = None) -> Any:
            return [1] if path.endswith("versions") else {"id": 7, "guid": "g"}

    versions(One(), "a", form=Form.JSONL)
    assert json.loads(capsys.readouterr().out) == {"subject": "a", "version": 1, "id": 7, "guid": "g"}
    versions(One(), "a", form=Form.TABLE)
    assert "subject" not in capsys.readouterr().out


JAVA = "The field 'x' at path '/fields/1' in the new schema has no default value and is missing in the old schema"


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            "{errorType:'TYPE_MISMATCH', description:'at /fields/0/type (field a.b)', "
            "additionalInfo:'reader type: int not compatible with writer type: string'}",
            "field a.b: string cannot be read as int",
        ),
        (
            "{errorType:'MISSING_ENUM_SYMBOLS', description:'at /symbols', additionalInfo:'B, C'}",
            "/symbols: missing enum symbols: B, C",
        ),
        (
            "{errorType:'REQUIRED_ATTRIBUTE_ADDED', description:'at #/required', additionalInfo:'a'}",
            "#/required: required attribute added: a",
        ),
        (
            "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'"
            + JAVA
            + "', additionalInfo:'x'}",
            f"{JAVA}: x",
        ),
    ],
)
def test_each_fault_of_an_incompatible_schema_is_a_line(said: str, line: str, tmp_path: Path) -> None:
    """A check and a registration say the same, and both exit with 1. Other text is shown as it is."""

    class Refusing(HttpApi):
        text = "; ".join((said, said, said.replace("Info:'", "Info:'other ")))

        def ask(self, method: str, path: str, body: Any = None, *, accepted: int | None = None) -> Any:
            if "compatibility" in path:
                return {"is_compatible": False, "messages": [self.text]}
            raise Failure(self.text, exits.EXISTS)

    file = tmp_path / "a.avsc"
    file.write_text('"int"')
    for call in (lambda api: check(api, "a", file), lambda api: register(api, "a", file, form=Form.TABLE)):
        with pytest.raises(Failure) as raised:
            call(Refusing())
        assert raised.value.code == exits.FAILED
        assert (raised.value.details[0], len(raised.value.details)) == (f"  {line}", 2)
        api = Refusing()
        api.text = "because"
        with pytest.raises(
            Failure, match=f"{file.name} is incompatible with an earlier version of a: because"
        ) as raised:
            call(api)
        assert raised.value.details == ()
