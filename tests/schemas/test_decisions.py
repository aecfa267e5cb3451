"""What changes of a registry write, and what the registry answers after them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raftlog.schemas.compatibility import LEVELS, compared_with, differences
from raftlog.schemas.decisions import (
    Change,
    Registration,
    decide_config,
    decide_config_removal,
    decide_mode,
    decide_mode_removal,
    decide_registration,
    decide_subject_deletion,
    decide_version_deletion,
    needs_check,
    version_of,
)
from raftlog.schemas.errors import (
    ID_MISMATCH,
    INVALID_COMPATIBILITY_LEVEL,
    INVALID_MODE,
    INVALID_SCHEMA,
    OPERATION_NOT_PERMITTED,
    REFERENCE_EXISTS,
    SCHEMA_TOO_LARGE,
    SUBJECT_NOT_FOUND,
    SUBJECT_NOT_SOFT_DELETED,
    SUBJECT_SOFT_DELETED,
    VERSION_NOT_FOUND,
    VERSION_NOT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    SchemaError,
)
from raftlog.schemas.formats import identity
from raftlog.schemas.records import SchemaWritten, decode, encode
from raftlog.schemas.registry_state import LATEST, RegistryState
from raftlog.schemas.schema import MAX_REFERENCES, Reference, Schema


def avro(name: str, *references: Reference, fields: tuple[str, ...] = ()) -> Schema:
    rows = [{"name": each, "type": "int"} for each in fields]
    return Schema("AVRO", json.dumps({"type": "record", "name": name, "fields": rows}), references)


class Book:
    """A registry in memory: what is decided is written, and read back as bytes."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.log: dict[bytes, bytes | None] = {}
        """The compacted topic."""

    def do(self, change: Change) -> Any:
        for record in change.records:
            key, value = encode(record)
            self.log.pop(key, None)
            self.log[key] = value
            apply(self.state, key, value)
        return change.reply

    def register(self, subject: str, schema: Schema, **given: int) -> tuple[int, int]:
        wanted = Registration(subject, schema, identity(schema), **given)
        found = self.do(decide_registration(self.state, wanted))
        return found.id, found.version

    def delete(self, subject: str, version: int | None = None, *, permanent: bool = False) -> Any:
        if version is None:
            return self.do(decide_subject_deletion(self.state, subject, permanent=permanent))
        return self.do(decide_version_deletion(self.state, subject, version, permanent=permanent))

    def compacted(self) -> RegistryState:
        """Return the state of a node that reads the topic after its compaction, without tombstones."""
        state = RegistryState()
        for key, value in self.log.items():
            if value is not None:
                apply(state, key, value)
        return state


def apply(state: RegistryState, key: bytes, value: bytes | None) -> None:
    record = decode(key, value)
    assert record is not None
    state.apply(record, identity(record.schema) if isinstance(record, SchemaWritten) else b"")


def refused(code: int) -> Any:
    return pytest.raises(SchemaError, check=lambda error: error.code == code)


def test_the_same_schema_has_one_id_in_every_subject() -> None:
    """And one version in a subject, however often it is registered."""
    book = Book()
    assert book.register("a", avro("A")) == (1, 1)
    assert book.register("a", avro("A")) == (1, 1)
    assert book.register("a", avro("B")) == (2, 2)
    assert book.register("b", avro("B")) == (2, 1)
    assert book.register("b", avro("C")) == (3, 2)


def test_a_version_is_not_given_again_after_a_soft_deletion() -> None:
    """The schema comes back under its id and a new version."""
    book = Book()
    book.register("a", avro("A"))
    book.register("a", avro("B"))
    assert book.delete("a", 2) == 2
    assert [each.version for each in book.state.versions("a")] == [1]
    assert book.register("a", avro("B")) == (2, 3)
    assert book.delete("a") == [1, 3]
    assert book.register("a", avro("A")) == (1, 4)


def test_an_id_is_not_given_again_after_a_permanent_deletion() -> None:
    """Nor after a compaction, which removes the record that had it. Records with the old id would be read wrongly."""
    book = Book()
    book.register("a", avro("A"))
    book.register("b", avro("B"))
    book.delete("b")
    assert book.delete("b", permanent=True) == [1]
    assert 2 not in book.state.ids
    for state in (book.state, book.compacted()):
        wanted = Registration("c", avro("C"), identity(avro("C")))
        assert decide_registration(state, wanted).reply.id == 3


def test_a_compacted_store_has_the_same_state() -> None:
    """Whatever order the last records of all keys are left in."""
    book = Book()
    for name in "ABC":
        book.register("a", avro(name))
    book.register("b", avro("B"))
    book.delete("a", 2)
    book.delete("a", 2, permanent=True)
    book.do(decide_config(book.state, "a", {"compatibilityLevel": "FULL"}))
    book.do(decide_mode(book.state, None, "READONLY", force=False))
    book.do(decide_mode_removal(book.state, None))
    book.delete("b")
    book.register("b", avro("D"))
    found = book.compacted()
    assert found.subjects == book.state.subjects
    assert {each: found.places[each] for each in sorted(found.places)} == book.state.places
    assert (found.configs, found.modes, found.highest_id) == (book.state.configs, {}, book.state.highest_id)


def test_deletions_are_soft_first() -> None:
    """Each error has the code that clients of Confluent's registry know."""
    book = Book()
    with refused(SUBJECT_NOT_FOUND):
        book.delete("a")
    book.register("a", avro("A"))
    book.register("a", avro("B"))
    with refused(SUBJECT_NOT_SOFT_DELETED):
        book.delete("a", permanent=True)
    with refused(VERSION_NOT_SOFT_DELETED):
        book.delete("a", 1, permanent=True)
    with refused(VERSION_NOT_FOUND):
        book.delete("a", 9)
    assert book.delete("a", LATEST) == 2
    with refused(VERSION_SOFT_DELETED):
        book.delete("a", 2)
    with refused(VERSION_NOT_FOUND):
        version_of(book.state, "a", 2)
    assert version_of(book.state, "a", 2, deleted=True).id == 2
    assert book.delete("a") == [1]
    with refused(SUBJECT_SOFT_DELETED):
        book.delete("a")
    assert book.delete("a", 1, permanent=True) == 1
    assert book.delete("a", permanent=True) == [2]
    with refused(SUBJECT_NOT_FOUND):
        version_of(book.state, "a", LATEST, deleted=True)


def test_what_another_schema_refers_to_is_not_deleted() -> None:
    """42206, until the schema that refers to it is deleted itself."""
    book = Book()
    book.register("money", avro("Money"))
    book.register("order", avro("Order", Reference("Money", "money", 1)))
    assert book.state.referrers_of(("money", 1)) == [2]
    for version in (None, 1):
        with refused(REFERENCE_EXISTS):
            book.delete("money", version)
    book.delete("order")
    assert book.state.referrers_of(("money", 1)) == []
    assert book.delete("money") == [1]


def test_what_a_new_schema_refers_to_may_be_gone_since_it_was_parsed() -> None:
    """The decision counts: a permanent deletion may come before it. Soft-deleted versions are still there."""
    book = Book()
    book.register("money", avro("Money"))
    book.delete("money")
    order = avro("Order", Reference("Money", "money", 1))
    assert book.register("order", order) == (2, 1)
    book.delete("order")
    book.delete("money", permanent=True)
    with refused(INVALID_SCHEMA):
        book.register("other", order)


def test_references_are_found_with_those_that_they_refer_to() -> None:
    """Deepest first, each once, however many ways lead to it."""
    book = Book()
    book.register("a", avro("A"))
    book.register("b", avro("B", Reference("A", "a", 1)))
    book.register("c", avro("C", Reference("B", "b", 1), Reference("A", "a", 1)))
    found = book.state.named((Reference("C", "c", 1), Reference("B", "b", 1)))
    assert [each.name for each in found] == ["A", "B", "C"]
    with refused(INVALID_SCHEMA):
        book.state.named((Reference("X", "a", 2),))


def test_references_have_a_limit_and_circles_an_end() -> None:
    """A chain of single references, and a store in which another registry wrote a circle."""
    book = Book()
    book.register("s0", avro("S0"))
    for number in range(1, MAX_REFERENCES + 1):
        book.register(f"s{number}", avro(f"S{number}", Reference(f"S{number - 1}", f"s{number - 1}", 1)))
    with refused(SCHEMA_TOO_LARGE):
        book.state.named((Reference("last", f"s{MAX_REFERENCES}", 1),))
    circle = Reference("X", "x", 1)
    book.state.apply(SchemaWritten("x", 1, 999, avro("X", circle)), b"x")
    assert [each.name for each in book.state.named((circle,))] == ["X"]


def test_a_mode_refuses_changes() -> None:
    """READONLY of a subject or of all; the same schema is still answered. READONLY_OVERRIDE counts more."""
    book = Book()
    book.register("a", avro("A"))
    book.do(decide_mode(book.state, "a", "READONLY", force=False))
    assert book.register("a", avro("A")) == (1, 1)
    for change in (
        lambda: book.register("a", avro("B")),
        lambda: book.delete("a"),
        lambda: book.delete("a", 1),
    ):
        with refused(OPERATION_NOT_PERMITTED):
            change()
    assert book.register("b", avro("B")) == (2, 1)
    book.do(decide_mode(book.state, "b", "READWRITE", force=False))
    book.do(decide_mode(book.state, None, "READONLY_OVERRIDE", force=False))
    with refused(OPERATION_NOT_PERMITTED):
        book.register("b", avro("C"))
    assert book.do(decide_mode_removal(book.state, None)) == "READONLY_OVERRIDE"
    assert book.register("b", avro("C")) == (3, 2)
    with refused(INVALID_MODE):
        decide_mode(book.state, None, "WRITEONLY", force=False)


def test_ids_and_versions_are_given_in_mode_import_only() -> None:
    """So another registry's schemas keep their ids. Two schemas never have the same id."""
    book = Book()
    with refused(OPERATION_NOT_PERMITTED):
        book.register("a", avro("A"), id=70)
    book.register("b", avro("B"))
    with refused(OPERATION_NOT_PERMITTED):
        decide_mode(book.state, None, "IMPORT", force=False)
    book.do(decide_mode(book.state, "a", "IMPORT", force=False))
    assert book.register("a", avro("A"), id=70, version=3) == (70, 3)
    assert not needs_check(book.state, Registration("a", avro("Z"), identity(avro("Z"))))
    with refused(ID_MISMATCH):
        book.register("a", avro("Z"), id=70)
    with refused(ID_MISMATCH):
        book.register("a", avro("Z"), id=71, version=3)
    assert book.register("a", avro("Z"), id=60, version=1) == (60, 1)
    assert [each.version for each in book.state.versions("a")] == [1, 3]
    book.do(decide_mode(book.state, "a", "READWRITE", force=False))
    assert book.register("a", avro("Y")) == (71, 4)


def test_a_config_of_a_subject_counts_more_than_that_of_all() -> None:
    """And ends with the subject."""
    book = Book()
    book.register("a", avro("A"))
    assert book.state.level("a") == "BACKWARD"
    book.do(decide_config(book.state, None, {"compatibilityLevel": "FULL"}))
    book.do(decide_config(book.state, "a", {"compatibilityLevel": "NONE"}))
    assert (book.state.level("a"), book.state.level("b")) == ("NONE", "FULL")
    with refused(INVALID_COMPATIBILITY_LEVEL):
        decide_config(book.state, "a", {"compatibilityLevel": "SIDEWAYS"})
    book.delete("a")
    assert book.state.level("a") == "FULL"
    assert book.do(decide_config_removal(book.state, None)) == {"compatibilityLevel": "FULL"}
    assert decide_config_removal(book.state, None) == Change((), {})


@pytest.mark.parametrize(
    ("level", "compared", "directions"),
    [
        ("NONE", "", []),
        ("BACKWARD", "c", ["new reads old"]),
        ("BACKWARD_TRANSITIVE", "cba", ["new reads old"]),
        ("FORWARD", "c", ["old reads new"]),
        ("FORWARD_TRANSITIVE", "cba", ["old reads new"]),
        ("FULL", "c", ["new reads old", "old reads new"]),
        ("FULL_TRANSITIVE", "cba", ["new reads old", "old reads new"]),
    ],
)
def test_what_a_level_compares(level: str, compared: str, directions: list[str]) -> None:
    """All seven of them."""
    assert list(compared_with(level, "abc")) == list(compared)
    assert differences(level, "new", "old", lambda reader, writer: [f"{reader} reads {writer}"]) == directions


def test_there_are_seven_levels() -> None:
    """Confluent's registry has the same."""
    assert len(LEVELS) == 7
