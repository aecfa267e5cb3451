"""The rules for new schemas: compatibility checks, configs and modes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from raftlog.admin.errors import ApiError
from raftlog.admin.route import TOPIC, Call
from raftlog.admin.schema_registry.answers import (
    SchemaBody,
    by_leader,
    schema_of,
    subject_of,
    version_number,
)
from raftlog.admin.schema_registry.registry import Registry
from raftlog.admin.schema_registry.subjects import SUBJECT, row
from raftlog.base.types import SCHEMAS_TOPIC
from raftlog.schemas.decisions import (
    decide_config,
    decide_config_removal,
    decide_mode,
    decide_mode_removal,
    version_of,
)
from raftlog.schemas.errors import (
    CONFIG_NOT_FOUND,
    INVALID_COMPATIBILITY_LEVEL,
    MODE_NOT_FOUND,
    SchemaError,
    subject_not_found,
)
from raftlog.schemas.registry_state import BACKWARD, LEVEL, Identified
from raftlog.security.acls import Operation


class Compatibility(msgspec.Struct, omit_defaults=True):
    """The outcome of a check; with `verbose`, the reasons."""

    is_compatible: bool
    messages: list[str] | None = None


class ConfigBody(msgspec.Struct, forbid_unknown_fields=True):
    """A config. Only its level can be set: another field of Confluent's API is refused unless it is null or false."""

    compatibility: str | None = None
    normalize: bool | None = None
    validateFields: bool | None = None
    alias: str | None = None
    compatibilityGroup: str | None = None
    defaultMetadata: dict[str, Any] | None = None
    overrideMetadata: dict[str, Any] | None = None
    defaultRuleSet: dict[str, Any] | None = None
    overrideRuleSet: dict[str, Any] | None = None
    compatibilityPolicy: str | None = None


class ConfigWritten(msgspec.Struct):
    """The level that was set."""

    compatibility: str


class ConfigAnswer(msgspec.Struct):
    """The level in force."""

    compatibilityLevel: str


class Mode(msgspec.Struct):
    """READWRITE, READONLY, READONLY_OVERRIDE or IMPORT."""

    mode: str


async def check_version(call: Call, registry: Registry) -> Compatibility:
    """Compare a schema with one version, at the level of the subject."""
    subject, number = subject_of(call, Operation.DESCRIBE), version_number(call)
    schema, identity = await registry.prepare(schema_of(call), normalize=call.query.normalize)
    state = await registry.store.current()
    version = version_of(state, subject, number)
    messages = await registry.compare(state, subject, Identified(schema, identity), [version])
    return Compatibility(not messages, messages if call.query.verbose else None)


async def check_subject(call: Call, registry: Registry) -> Compatibility:
    """Compare a schema with the versions that the level of the subject names."""
    subject = subject_of(call, Operation.DESCRIBE)
    schema, identity = await registry.prepare(schema_of(call), normalize=call.query.normalize)
    state = await registry.store.current()
    messages = await registry.compare(state, subject, Identified(schema, identity), state.versions(subject))
    return Compatibility(not messages, messages if call.query.verbose else None)


def _of_all(call: Call, operation: Operation) -> None:
    """Demand a right that concerns all subjects."""
    call.demand(operation, TOPIC, SCHEMAS_TOPIC)


async def get_config(call: Call, registry: Registry) -> ConfigAnswer:
    """Return the level of all subjects without their own."""
    _of_all(call, Operation.DESCRIBE_CONFIGS)
    state = await registry.store.current()
    return ConfigAnswer(str(state.configs.get(None, {}).get(LEVEL, BACKWARD)))


async def get_subject_config(call: Call, registry: Registry) -> ConfigAnswer:
    """Return the level of a subject; with `defaultToGlobal`, the level in force for it."""
    subject = subject_of(call, Operation.DESCRIBE)
    state = await registry.store.current()
    if not call.query.defaultToGlobal and LEVEL not in state.configs.get(subject, {}):
        raise SchemaError(
            CONFIG_NOT_FOUND, f"subject '{subject}' does not have subject-level compatibility configured"
        )
    return ConfigAnswer(state.level(subject))


def _config_of(body: ConfigBody) -> dict[str, Any]:
    given = {
        name: value for name, value in msgspec.structs.asdict(body).items() if value not in (None, False)
    }
    level = given.pop("compatibility", None)
    if given:
        raise ApiError(
            422, f"this registry has no {', '.join(sorted(given))}", code=INVALID_COMPATIBILITY_LEVEL
        )
    if level is None:
        raise SchemaError(INVALID_COMPATIBILITY_LEVEL, "the body has no compatibility")
    return {LEVEL: level.upper()}


async def set_config(call: Call, registry: Registry) -> ConfigWritten:
    """Set the level of all subjects without their own."""
    _of_all(call, Operation.ALTER_CONFIGS)
    found = await registry.change(decide_config, None, _config_of(call.body))
    return ConfigWritten(found[LEVEL])


async def set_subject_config(call: Call, registry: Registry) -> ConfigWritten:
    """Set the level of a subject."""
    subject = subject_of(call, Operation.ALTER_CONFIGS)
    found = await registry.change(decide_config, subject, _config_of(call.body))
    return ConfigWritten(found[LEVEL])


async def reset_config(call: Call, registry: Registry) -> ConfigAnswer:
    """Remove the level of all subjects; answer what it was."""
    _of_all(call, Operation.ALTER_CONFIGS)
    before = await registry.change(decide_config_removal, None)
    return ConfigAnswer(str(before.get(LEVEL, BACKWARD)))


async def reset_subject_config(call: Call, registry: Registry) -> ConfigAnswer:
    """Remove the level of a subject; answer what it was."""
    subject = subject_of(call, Operation.ALTER_CONFIGS)
    before = await registry.change(decide_config_removal, subject)
    if LEVEL not in before:
        raise subject_not_found(subject)
    return ConfigAnswer(str(before[LEVEL]))


async def get_mode(call: Call, registry: Registry) -> Mode:
    """Return the mode of the registry."""
    _of_all(call, Operation.DESCRIBE_CONFIGS)
    return Mode((await registry.store.current()).mode(None))


async def get_subject_mode(call: Call, registry: Registry) -> Mode:
    """Return the mode of a subject; with `defaultToGlobal`, the mode in force for it."""
    subject = subject_of(call, Operation.DESCRIBE)
    state = await registry.store.current()
    if not call.query.defaultToGlobal and subject not in state.modes:
        raise SchemaError(MODE_NOT_FOUND, f"subject '{subject}' does not have subject-level mode configured")
    return Mode(state.mode(subject))


async def set_mode(call: Call, registry: Registry) -> Mode:
    """Set the mode of the registry."""
    _of_all(call, Operation.ALTER_CONFIGS)
    return Mode(await registry.change(decide_mode, None, call.body.mode, force=call.query.force))


async def set_subject_mode(call: Call, registry: Registry) -> Mode:
    """Set the mode of a subject."""
    subject = subject_of(call, Operation.ALTER_CONFIGS)
    return Mode(await registry.change(decide_mode, subject, call.body.mode, force=call.query.force))


async def reset_mode(call: Call, registry: Registry) -> Mode:
    """Remove the mode of the registry; answer what it was."""
    _of_all(call, Operation.ALTER_CONFIGS)
    return Mode(await registry.change(decide_mode_removal, None))


async def reset_subject_mode(call: Call, registry: Registry) -> Mode:
    """Remove the mode of a subject; answer what it was."""
    return Mode(await registry.change(decide_mode_removal, subject_of(call, Operation.ALTER_CONFIGS)))


CHECK: Final = f"/compatibility{SUBJECT}/versions"
CONFIG: Final = "/config"
MODE: Final = "/mode"
ROUTES: Final = (
    row(
        "POST",
        f"{CHECK}/{{version}}",
        by_leader(check_version),
        "Compare a schema with a version",
        body=SchemaBody,
        role="reader",
    ),
    row(
        "POST",
        CHECK,
        by_leader(check_subject),
        "Compare a schema with a subject",
        body=SchemaBody,
        role="reader",
    ),
    row("GET", CONFIG, by_leader(get_config), "Show the compatibility level"),
    row("PUT", CONFIG, by_leader(set_config), "Set the compatibility level", body=ConfigBody),
    row("DELETE", CONFIG, by_leader(reset_config), "Reset the compatibility level"),
    row(
        "GET", f"{CONFIG}/{{subject}}", by_leader(get_subject_config), "Show a subject's compatibility level"
    ),
    row(
        "PUT",
        f"{CONFIG}/{{subject}}",
        by_leader(set_subject_config),
        "Set a subject's compatibility level",
        body=ConfigBody,
    ),
    row(
        "DELETE",
        f"{CONFIG}/{{subject}}",
        by_leader(reset_subject_config, repeatable=False),
        "Reset a subject's compatibility level",
    ),
    row("GET", MODE, by_leader(get_mode), "Show the mode"),
    row("PUT", MODE, by_leader(set_mode), "Set the mode", body=Mode),
    row("DELETE", MODE, by_leader(reset_mode), "Reset the mode"),
    row("GET", f"{MODE}/{{subject}}", by_leader(get_subject_mode), "Show a subject's mode"),
    row("PUT", f"{MODE}/{{subject}}", by_leader(set_subject_mode), "Set a subject's mode", body=Mode),
    row(
        "DELETE",
        f"{MODE}/{{subject}}",
        by_leader(reset_subject_mode, repeatable=False),
        "Reset a subject's mode",
    ),
)
