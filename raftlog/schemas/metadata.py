"""Metadata of schemas, in the shape of Confluent's registry: tags, properties, and the names of sensitive properties.

A version takes over the metadata and the rules of the version before it if its request has none. So a serializer that
registers its schema without them finds the version that has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from raftlog.schemas.decisions import IMPORT, Registration, registered
from raftlog.schemas.errors import schema_not_found, subject_not_found
from raftlog.schemas.registry_state import RegistryState, Version
from raftlog.schemas.schema import Schema


def completed(state: RegistryState, wanted: Registration) -> Schema:
    """Return the schema with the metadata and the rules that it takes over from the latest version of its subject.

    The request has {} to take none over. An import takes none over, nor does a version that is exactly this schema.
    """
    schema = wanted.schema
    versions = state.versions(wanted.subject)
    if versions and registered(state, wanted) is None and state.mode(wanted.subject) != IMPORT:
        latest = state.schema_of(versions[-1])
        if schema.metadata is None:
            schema = schema._replace(metadata=latest.metadata)
        if schema.rule_set is None:
            schema = schema._replace(rule_set=latest.rule_set)
    return schema._replace(metadata=schema.metadata or None, rule_set=schema.rule_set or None)


def latest_with(
    state: RegistryState, subject: str, forms: Iterable[Mapping[str, str]], *, deleted: bool
) -> Version:
    """Return the newest version with metadata that has these properties. Raise SchemaError 40401 or 40403.

    `forms` of the properties are tried in their order.
    """
    versions = state.versions(subject, deleted=deleted)
    if not versions:
        raise subject_not_found(subject)
    described = [each for each in reversed(versions) if state.schema_of(each).metadata]
    for properties in forms:
        for each in described:
            if properties.items() <= properties_of(state.schema_of(each).metadata or {}).items():
                return each
    raise schema_not_found()


def properties_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of metadata, which another registry may have written in whatever shape."""
    found = metadata.get("properties")
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}
