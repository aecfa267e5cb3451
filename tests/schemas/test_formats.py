"""The formats: identities, and packages that are not installed."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from uuid import UUID

import pytest

from raftlog.schemas import formats
from raftlog.schemas.errors import MISSING_PACKAGE, SchemaError
from raftlog.schemas.formats import guid_of, identity
from raftlog.schemas.schema import KINDS, Kind, Reference, Schema

INT = Schema("AVRO", '"int"')


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_package_is_named_with_how_to_install_it(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node without the extra serves the registry, and says what it lacks: status 501."""

    def find_none(name: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(formats, "find_spec", find_none)
    with pytest.raises(SchemaError, match=r"pip install '\.\[schema\]' in a checkout") as caught:
        formats.demand_package(kind)
    assert (caught.value.code, caught.value.status) == (MISSING_PACKAGE, 501)


def test_references_metadata_and_rules_are_part_of_the_identity() -> None:
    """A schema with other rules is another schema; white space is not."""
    others = [
        INT._replace(references=(Reference("A", "a", 1),)),
        INT._replace(references=(Reference("A", "a", 2),)),
        INT._replace(metadata={"properties": {"owner": "me"}}),
        INT._replace(rule_set={"domainRules": []}),
        INT._replace(kind="JSON"),
    ]
    assert len({identity(each) for each in (INT, *others)}) == len(others) + 1
    assert identity(INT._replace(text=' "int" ')) == identity(INT)
    assert UUID(guid_of(identity(INT))).bytes == identity(INT)


def test_a_text_that_is_no_schema_has_an_identity() -> None:
    """Another registry, with other limits, may have written it: the store is read all the same."""
    assert identity(Schema("AVRO", "{")) != identity(Schema("AVRO", "{{"))
    assert identity(Schema("JSON", "[" * 100_000))


@pytest.mark.parametrize(
    "text",
    [
        '{"type":["null","string"],"doc":"x"}',
        '{"type":{"type":["null"],"items":"int"},"doc":"x"}',
        '{"type":"record","name":"R","doc":"\\ud800","fields":[]}',
    ],
)
def test_odd_json_has_an_identity(text: str) -> None:
    """One record in the log must not end the registry: a list as a type, and half of a surrogate pair."""
    for kind in KINDS:
        assert identity(Schema(kind, text)) != identity(Schema(kind, f"{text}x"))
