"""Changes of a registry. A decision reads the state, and returns the records to write and the answer.

Ordering law: a decision is made on the state of all records before its own, and on no other state.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from raftlog.schemas.compatibility import LEVELS
from raftlog.schemas.errors import (
    ID_MISMATCH,
    INVALID_COMPATIBILITY_LEVEL,
    INVALID_MODE,
    OPERATION_NOT_PERMITTED,
    REFERENCE_EXISTS,
    SUBJECT_NOT_SOFT_DELETED,
    SUBJECT_SOFT_DELETED,
    VERSION_NOT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    SchemaError,
    subject_not_found,
    version_not_found,
)
from raftlog.schemas.records import (
    ConfigWritten,
    IdsKept,
    ModeWritten,
    SchemaRemoved,
    SchemaWritten,
    StoreRecord,
    SubjectDeleted,
)
from raftlog.schemas.registry_state import LATEST, RegistryState, Version
from raftlog.schemas.schema import Schema

IMPORT: Final = "IMPORT"
MODES: Final = frozenset({"READWRITE", "READONLY", "READONLY_OVERRIDE", IMPORT})
INT32: Final = 2**31


class Change(NamedTuple):
    """The records to write, and the answer once they are committed."""

    records: tuple[StoreRecord, ...]
    reply: Any


class Registration(NamedTuple):
    """A schema to register under a subject. `id` and `version` are given in mode IMPORT only; 0: the next."""

    subject: str
    schema: Schema
    identity: bytes
    id: int = 0
    version: int = 0


def registered(state: RegistryState, wanted: Registration) -> Version | None:
    """Return the version under which the subject already has this schema, otherwise None."""
    found = state.find(wanted.subject, wanted.identity)
    if found is None or wanted.id not in (0, found.id) or wanted.version not in (0, found.version):
        return None
    return found


def needs_check(state: RegistryState, wanted: Registration) -> bool:
    """Return whether the schema must be compatible with earlier versions: it is new, and none is imported."""
    return registered(state, wanted) is None and state.mode(wanted.subject) != IMPORT


def decide_registration(state: RegistryState, wanted: Registration) -> Change:
    """Register a schema that is compatible. Raises SchemaError.

    The same schema keeps its id, whatever subject it is registered under. A version is not given again as long as a
    later version of its subject is there, deleted or not.
    """
    found = registered(state, wanted)
    if found is not None:
        return Change((), found)
    _check_given(state, wanted)
    state.named(wanted.schema.references)  # a version may be gone since the schema was parsed with it
    schema_id = wanted.id or state.by_identity.get(wanted.identity, 0) or state.highest_id + 1
    version = wanted.version or state.next_version(wanted.subject)
    if schema_id >= INT32:
        raise SchemaError(OPERATION_NOT_PERMITTED, "all ids of 32 bits are given")
    known = state.ids.get(schema_id)
    if known is not None and known.identity != wanted.identity:
        raise SchemaError(ID_MISMATCH, f"id {schema_id} is another schema's")
    before = state.subjects.get(wanted.subject, {}).get(version)
    if before is not None and before.id != schema_id:
        raise SchemaError(ID_MISMATCH, f"version {version} of {wanted.subject} is another schema")
    schema = wanted.schema if known is None else known.schema
    written = SchemaWritten(wanted.subject, version, schema_id, schema)
    return Change((written,), Version(wanted.subject, version, schema_id, deleted=False))


def _check_given(state: RegistryState, wanted: Registration) -> None:
    mode = state.mode(wanted.subject)
    if mode.startswith("READONLY"):
        raise _not_permitted(wanted.subject, mode)
    if (wanted.id or wanted.version > 0) and mode != IMPORT:
        next_version = state.next_version(wanted.subject)
        if wanted.id or wanted.version != next_version:
            raise SchemaError(
                OPERATION_NOT_PERMITTED,
                f"subject {wanted.subject} is not in mode IMPORT, in which alone ids and versions are given",
            )


def _not_permitted(subject: str | None, mode: str) -> SchemaError:
    where = "the registry" if subject is None else f"subject {subject}"
    return SchemaError(OPERATION_NOT_PERMITTED, f"{where} is in mode {mode}")


def version_of(state: RegistryState, subject: str, version: int, *, deleted: bool = False) -> Version:
    """Return a version, the newest for LATEST. Raise SchemaError 40401 or 40402."""
    versions = state.versions(subject, deleted=deleted)
    if not versions:
        raise subject_not_found(subject)
    found = versions[-1] if version == LATEST else state.subjects[subject].get(version)
    if found is None or (found.deleted and not deleted):
        raise version_not_found(version)
    return found


def decide_subject_deletion(state: RegistryState, subject: str, *, permanent: bool) -> Change:
    """Soft-delete all versions of a subject, or permanently delete its soft-deleted versions. Raises SchemaError."""
    everything = state.versions(subject, deleted=True)
    live = state.versions(subject)
    if not everything:
        raise subject_not_found(subject)
    _check_mode(state, subject)
    if permanent and live:
        raise SchemaError(
            SUBJECT_NOT_SOFT_DELETED,
            f"subject '{subject}' was not deleted first before being permanently deleted",
        )
    if not permanent and not live:
        raise SchemaError(
            SUBJECT_SOFT_DELETED,
            f"subject '{subject}' was soft deleted; set permanent=true to delete it permanently",
        )
    gone = everything if permanent else live
    for each in gone:
        _check_unreferenced(state, each)
    numbers = [each.version for each in gone]
    if not permanent:
        return Change((SubjectDeleted(subject, numbers[-1]), *_settings_gone(state, subject)), numbers)
    removed = tuple(SchemaRemoved(subject, number) for number in numbers)
    return Change((IdsKept(state.highest_id), *removed), numbers)


def _settings_gone(state: RegistryState, subject: str) -> tuple[StoreRecord, ...]:
    """Return the records that end a subject's own config and mode."""
    gone: tuple[StoreRecord, ...] = ()
    if subject in state.configs:
        gone += (ConfigWritten(subject, {}),)
    if subject in state.modes:
        gone += (ModeWritten(subject, ""),)
    return gone


def decide_version_deletion(state: RegistryState, subject: str, version: int, *, permanent: bool) -> Change:
    """Soft-delete a version, or permanently delete a soft-deleted version. Raises SchemaError."""
    deleted = permanent or version != LATEST
    found = version_of(state, subject, version, deleted=deleted)
    _check_mode(state, subject)
    if permanent and not found.deleted:
        raise SchemaError(
            VERSION_NOT_SOFT_DELETED,
            f"version {found.version} of subject '{subject}' was not deleted first before being permanently deleted",
        )
    if not permanent and found.deleted:
        raise SchemaError(
            VERSION_SOFT_DELETED,
            f"version {found.version} of subject '{subject}' was soft deleted; set permanent=true to delete it "
            "permanently",
        )
    _check_unreferenced(state, found)
    if permanent:
        return Change((IdsKept(state.highest_id), SchemaRemoved(subject, found.version)), found.version)
    written = SchemaWritten(subject, found.version, found.id, state.schema_of(found), deleted=True)
    return Change((written,), found.version)


def _check_mode(state: RegistryState, subject: str) -> None:
    mode = state.mode(subject)
    if mode.startswith("READONLY"):
        raise _not_permitted(subject, mode)


def _check_unreferenced(state: RegistryState, version: Version) -> None:
    referrers = state.referrers_of((version.subject, version.version))
    if referrers:
        raise SchemaError(
            REFERENCE_EXISTS,
            f"version {version.version} of subject '{version.subject}' is referred to by schema {referrers[0]}",
        )


def decide_config(state: RegistryState, subject: str | None, config: dict[str, Any]) -> Change:
    """Set the config of a subject, or the global config. Raise SchemaError for an unknown level."""
    level = config.get("compatibilityLevel")
    if level is not None and level not in LEVELS:
        raise SchemaError(
            INVALID_COMPATIBILITY_LEVEL, f"invalid compatibility level: it must be one of {', '.join(LEVELS)}"
        )
    merged = {**state.configs.get(subject, {}), **config}
    return Change((ConfigWritten(subject, merged),), merged)


def decide_config_removal(state: RegistryState, subject: str | None) -> Change:
    """Remove the config of a subject, or of all; answer the config in force before."""
    before = state.configs.get(subject, {})
    return Change((ConfigWritten(subject, {}),) if before else (), before)


def decide_mode(state: RegistryState, subject: str | None, mode: str, *, force: bool) -> Change:
    """Set the mode of a subject, or the global mode. IMPORT needs `force` if there are schemas already."""
    if mode not in MODES:
        raise SchemaError(INVALID_MODE, f"invalid mode: it must be one of {', '.join(sorted(MODES))}")
    has_schemas = bool(state.subjects if subject is None else state.versions(subject))
    if mode == IMPORT and has_schemas and not force:
        where = "the registry" if subject is None else f"subject {subject}"
        raise SchemaError(OPERATION_NOT_PERMITTED, f"{where} has schemas: mode IMPORT needs force=true")
    return Change((ModeWritten(subject, mode),), mode)


def decide_mode_removal(state: RegistryState, subject: str | None) -> Change:
    """Remove the mode of a subject, or of all; answer the mode before, or the default."""
    before = state.modes.get(subject, "")
    return Change((ModeWritten(subject, ""),) if before else (), before or "READWRITE")
