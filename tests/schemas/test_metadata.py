"""raftlog.schemas.metadata: what a version takes over from the version before it, and which version has properties."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.schemas.decisions import Registration, decide_mode, decide_registration
from raftlog.schemas.errors import SCHEMA_NOT_FOUND, SUBJECT_NOT_FOUND, SchemaError
from raftlog.schemas.formats import identity
from raftlog.schemas.metadata import completed, latest_with
from raftlog.schemas.records import SchemaWritten, SubjectDeleted, decode, encode
from raftlog.schemas.registry_state import RegistryState
from raftlog.schemas.schema import Schema

SUBJECT = "orders-value"
INT, LONG = Schema("AVRO", '"int"'), Schema("AVRO", '"long"')
SHOP, BANK = ({"properties": {"owner": name}} for name in ("shop", "bank"))
RULES = {"domainRules": [{"name": "check", "type": "CEL"}]}


def wanted(schema: Schema) -> Registration:
    return Registration(SUBJECT, schema, identity(schema))


def apply(state: RegistryState, *records: Any) -> None:
    """Write records and read them back, as the log does."""
    for each in records:
        found = decode(*encode(each))
        assert found is not None
        state.apply(found, identity(found.schema) if isinstance(found, SchemaWritten) else b"")


def register(state: RegistryState, schema: Schema) -> int:
    """Return the version."""
    change = decide_registration(state, wanted(completed(state, wanted(schema))))
    apply(state, *change.records)
    version: int = change.reply.version
    return version


def test_a_schema_without_metadata_is_the_version_that_has_it() -> None:
    """A serializer registers its text alone, each time it starts."""
    state = RegistryState()
    assert register(state, INT._replace(metadata=SHOP, rule_set=RULES)) == 1
    assert register(state, INT) == 1
    assert register(state, LONG) == 2
    found = state.schema_of(state.versions(SUBJECT)[-1])
    assert (found.metadata, found.rule_set) == (SHOP, RULES)


def test_other_metadata_is_another_version() -> None:
    """The text is the same, and the id is not. {} takes over nothing."""
    state = RegistryState()
    versions = [
        register(state, INT._replace(metadata=each)) for each in (SHOP, BANK, {}, SHOP, None, BANK, {})
    ]
    assert versions == [1, 2, 3, 1, 3, 2, 3]
    assert len(state.ids) == 3
    assert state.schema_of(state.versions(SUBJECT)[-1]).metadata is None


def test_an_import_takes_over_nothing() -> None:
    """It is as the other registry has it."""
    state = RegistryState()
    register(state, INT._replace(metadata=SHOP))
    apply(state, *decide_mode(state, SUBJECT, "IMPORT", force=True).records)
    assert completed(state, wanted(LONG)).metadata is None


def test_the_newest_version_with_all_properties_is_found() -> None:
    """Further properties of it do no harm, deleted versions count if they are asked for."""
    state = RegistryState()
    both = {"properties": {"owner": "shop", "area": "eu"}}
    for text, metadata in (('"int"', SHOP), ('"long"', both), ('"float"', BANK)):
        register(state, Schema("AVRO", text, metadata=metadata))

    def found(*, deleted: bool = False, **properties: str) -> int:
        return latest_with(state, SUBJECT, [properties], deleted=deleted).version

    assert (found(owner="shop"), found(owner="bank"), found(area="eu", owner="shop"), found()) == (2, 3, 2, 3)
    with pytest.raises(SchemaError, check=lambda error: error.code == SCHEMA_NOT_FOUND):
        found(owner="bank", area="eu")
    apply(state, SubjectDeleted(SUBJECT, 3))
    assert found(owner="shop", deleted=True) == 2
    with pytest.raises(SchemaError, check=lambda error: error.code == SUBJECT_NOT_FOUND):
        found(owner="shop")


@pytest.mark.parametrize(
    "metadata", [{"properties": "me"}, {"properties": {"owner": ["shop"]}}, {"tags": {}}]
)
def test_metadata_of_other_shapes_has_no_properties(metadata: Any) -> None:
    """Another registry wrote it."""
    state = RegistryState()
    apply(state, SchemaWritten(SUBJECT, 1, 1, INT._replace(metadata=metadata)))
    with pytest.raises(SchemaError, check=lambda error: error.code == SCHEMA_NOT_FOUND):
        latest_with(state, SUBJECT, [{"owner": "shop"}], deleted=False)
