"""The state of a registry: a fold of the records of `_schemas`. Only `apply` changes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from raftlog.schemas.errors import invalid_schema, too_large
from raftlog.schemas.records import (
    ConfigWritten,
    IdsKept,
    ModeWritten,
    SchemaRemoved,
    SchemaWritten,
    StoreRecord,
    SubjectCleared,
    SubjectDeleted,
)
from raftlog.schemas.schema import MAX_REFERENCED_CHARS, MAX_REFERENCES, Named, Reference, Schema

BACKWARD: Final = "BACKWARD"
READWRITE: Final = "READWRITE"
LEVEL: Final = "compatibilityLevel"
LATEST: Final = -1

Place = tuple[str, int]
"""(subject, version)."""


class Version(NamedTuple):
    """One version of a subject."""

    subject: str
    version: int
    id: int
    deleted: bool


class Identified(NamedTuple):
    """A schema, wherever it is registered, and its identity."""

    schema: Schema
    identity: bytes


class RegistryState:
    """All subjects and schemas. Soft-deleted versions stay until they are deleted permanently."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Version]] = {}
        """The versions of each subject, in ascending order."""
        self.ids: dict[int, Identified] = {}
        self.places: dict[int, set[Place]] = {}
        """Where an id is registered."""
        self.by_identity: dict[bytes, int] = {}
        self.referrers: dict[Place, set[int]] = {}
        """The ids of schemas that refer to a version."""
        self.configs: dict[str | None, Mapping[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self.highest_id = 0
        """The highest id ever given, even to a schema that is gone."""

    # -- the fold

    def apply(self, record: StoreRecord, schema_identity: bytes = b"") -> None:
        """Apply the next record; a written schema comes with its identity."""
        match record:
            case SchemaWritten():
                self._write(record, schema_identity)
            case SchemaRemoved(subject, version):
                self._remove((subject, version))
            case SubjectDeleted(subject, last):
                for each in self.versions(subject):
                    if each.version <= last:
                        self.subjects[subject][each.version] = each._replace(deleted=True)
            case SubjectCleared(subject):
                for each in self.versions(subject, deleted=True):
                    self._remove((subject, each.version))
            case ConfigWritten(subject, config):
                _put(self.configs, subject, config)
            case ModeWritten(subject, mode):
                _put(self.modes, subject, mode)
            case IdsKept(highest_id):
                self.highest_id = max(self.highest_id, highest_id)

    def _write(self, record: SchemaWritten, schema_identity: bytes) -> None:
        place = (record.subject, record.version)
        before = self.subjects.get(record.subject, {}).get(record.version)
        if before is not None and before.id != record.id:
            self._remove(place)
        self.highest_id = max(self.highest_id, record.id)
        if record.id not in self.ids:
            found = Identified(record.schema, schema_identity)
            self.ids[record.id] = found
            self.by_identity.setdefault(found.identity, record.id)
            for each in record.schema.references:
                self.referrers.setdefault((each.subject, each.version), set()).add(record.id)
        self.places.setdefault(record.id, set()).add(place)
        versions = self.subjects.setdefault(record.subject, {})
        is_last = not versions or record.version >= next(reversed(versions))
        versions[record.version] = Version(record.subject, record.version, record.id, record.deleted)
        if not is_last:
            self.subjects[record.subject] = dict(sorted(versions.items()))

    def _remove(self, place: Place) -> None:
        subject, version = place
        versions = self.subjects.get(subject, {})
        gone = versions.pop(version, None)
        if gone is None:
            return
        if not versions:
            del self.subjects[subject]
        places = self.places[gone.id]
        places.discard(place)
        if not places:
            self._forget(gone.id)

    def _forget(self, schema_id: int) -> None:
        del self.places[schema_id]
        gone = self.ids.pop(schema_id)
        if self.by_identity.get(gone.identity) == schema_id:
            del self.by_identity[gone.identity]
        for each in gone.schema.references:
            referrers = self.referrers.get((each.subject, each.version), set())
            referrers.discard(schema_id)
            if not referrers:
                self.referrers.pop((each.subject, each.version), None)

    # -- queries

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Return the versions of a subject in ascending order; with `deleted`, soft-deleted versions as well."""
        return [each for each in self.subjects.get(subject, {}).values() if deleted or not each.deleted]

    def schema_of(self, version: Version) -> Schema:
        return self.ids[version.id].schema

    def next_version(self, subject: str) -> int:
        """Return the version that the next schema of a subject gets."""
        return next(reversed(self.subjects.get(subject, {0: None}))) + 1

    def find(self, subject: str, wanted: bytes, *, deleted: bool = False) -> Version | None:
        """Return the newest version of a subject with this identity."""
        found = (
            each
            for each in reversed(self.versions(subject, deleted=deleted))
            if self.ids[each.id].identity == wanted
        )
        return next(found, None)

    def level(self, subject: str) -> str:
        """Return the compatibility level in force for a subject."""
        for name in (subject, None):
            found = self.configs.get(name, {}).get(LEVEL)
            if found:
                return str(found)
        return BACKWARD

    def mode(self, subject: str | None) -> str:
        """Return the mode in force for a subject; a global READONLY_OVERRIDE counts more than a subject's."""
        everywhere = self.modes.get(None, READWRITE)
        if everywhere == "READONLY_OVERRIDE" or subject is None:
            return everywhere
        return self.modes.get(subject, everywhere)

    def referrers_of(self, place: Place) -> list[int]:
        """Return the ids of schemas that refer to a version, and are registered somewhere without being deleted."""
        return sorted(each for each in self.referrers.get(place, ()) if self._is_live(each))

    def _is_live(self, schema_id: int) -> bool:
        return any(not self.subjects[subject][version].deleted for subject, version in self.places[schema_id])

    def named(self, references: Iterable[Reference]) -> tuple[Named, ...]:
        """Return the schemas that a schema refers to, each after its own references. Raises SchemaError."""
        found: dict[str, Named] = {}
        size = 0
        for each in self._referenced(references):
            if each.name not in found:
                size += len(each.text)
                found[each.name] = each
            if len(found) > MAX_REFERENCES or size > MAX_REFERENCED_CHARS:
                raise too_large(
                    f"it refers to more than {MAX_REFERENCES} schemas or {MAX_REFERENCED_CHARS} characters"
                )
        return tuple(found.values())

    def _referenced(self, references: Iterable[Reference]) -> Iterator[Named]:
        """Yield the schemas referred to, deepest first. The walk has an end: a version refers to earlier records.

        A store written by others may have circles, so a reference is followed once.
        """
        walking = [iter(references)]
        above: list[Named] = []
        seen: set[Reference] = set()
        while walking:
            each = next(walking[-1], None)
            if each is None:
                walking.pop()
                if above:
                    yield above.pop()
                continue
            version = self._version_referred_to(each)
            if each in seen:
                continue
            seen.add(each)
            schema = self.schema_of(version)
            above.append(Named(each.name, schema.text))
            walking.append(iter(schema.references))

    def referred_to(self, wanted: Identified) -> list[Identified]:
        """Return the schemas that a schema refers to, directly or through others. Raises SchemaError."""
        found: dict[int, Identified] = {}
        waiting = list(wanted.schema.references)
        while waiting:
            schema_id = self._version_referred_to(waiting.pop()).id
            if schema_id not in found:
                found[schema_id] = self.ids[schema_id]
                waiting += found[schema_id].schema.references
            if len(found) > MAX_REFERENCES:
                raise too_large(f"it refers to more than {MAX_REFERENCES} schemas")
        return list(found.values())

    def _version_referred_to(self, reference: Reference) -> Version:
        versions = self.subjects.get(reference.subject, {})
        version = versions.get(reference.version)
        if version is None:
            raise invalid_schema(
                f"no schema reference found for subject '{reference.subject[:249]}' and version {reference.version}"
            )
        return version


def _put(values: dict[str | None, Any], key: str | None, value: Any) -> None:
    if value:
        values[key] = value
    else:
        values.pop(key, None)
