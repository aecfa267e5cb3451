"""The versions of Kafka's APIs that a broker serves, and Kafka's recorded answers as they are in older versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from raftlog.protocol.apis import APIS, ApiKey
from raftlog.protocol.schema import KioType, message_type, schema_of
from raftlog_chaos.conformance.compare import Observation
from raftlog_chaos.conformance.messages import Message

RAFTLOGS_FEATURE = "raftlog.metadata.version"

_FIRST_FENCED: Final[Mapping[int, int]] = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""The first versions that know PRODUCER_FENCED."""


class NotServed(Exception):
    """The broker does not serve a request in the version that a history needs."""


class Versions(NamedTuple):
    """The answer to ApiVersions: the first and last version of each API by its key, and the names of features."""

    ranges: Mapping[int, tuple[int, int]]
    features: frozenset[str] = frozenset()

    @property
    def is_raftlog(self) -> bool:
        """Whether the broker is raftlog: the differences on purpose are raftlog's alone."""
        return RAFTLOGS_FEATURE in self.features

    def require(self, key: int, version: int) -> None:
        """Raise NotServed if the broker does not serve this version."""
        first, last = self._range(key)
        if not first <= version <= last:
            raise NotServed(f"{_name(key)} v{version}: the broker serves v{first} to v{last}")

    def newest(self, key: int, version: int) -> int:
        """Return the newest version that both sides know, at most `version`. Raises NotServed if there is none."""
        first, last = self._range(key)
        found = min(version, last)
        if found < max(first, APIS[key].min_version):
            raise NotServed(f"{_name(key)} up to v{version}: the broker serves v{first} to v{last}")
        return found

    def _range(self, key: int) -> tuple[int, int]:
        if key not in self.ranges:
            raise NotServed(f"{_name(key)}: the broker does not serve it")
        return self.ranges[key]


def versions_of(answer: Message) -> Versions:
    """Return an answer to ApiVersions."""
    ranges = {each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]}
    features = [*(answer.get("supported_features") or ()), *(answer.get("finalized_features") or ())]
    return Versions(ranges, frozenset(each["name"] for each in features))


class Lowered(NamedTuple):
    """A request for the newest version where the broker knows only an older version."""

    key: int
    wanted: int
    version: int

    def __str__(self) -> str:
        return f"{_name(self.key)} v{self.version}"

    def require_fields(self, fields: Iterable[str]) -> None:
        """Raise NotServed if the older version lacks one of a request's fields: the request would have another
        meaning.
        """
        if missing := _dropped(self, "request").intersection(fields):
            raise NotServed(f"{self} has no {' and no '.join(sorted(missing))}")


def as_in_older_versions(kafka: Observation, lowered: Mapping[int, Lowered]) -> Observation:
    """Return Kafka's answers without the fields that the older versions do not have. Keys are indexes of steps."""
    return [
        _older(step, lowered[at]) if at in lowered and "answer" in step else step
        for at, step in enumerate(kafka)
    ]


def _older(step: Mapping[str, Any], lowered: Lowered) -> dict[str, Any]:
    asked = str(step["asked"]).replace(f" v{lowered.wanted}", f" v{lowered.version}", 1)
    older = {
        name: _without(step[name], _dropped(lowered, kind))
        for name, kind in (("fields", "request"), ("answer", "response"))
        if name in step
    }
    if lowered.version < _FIRST_FENCED.get(lowered.key, 0):
        older["answer"] = _with_older_error(older["answer"])
    return {**step, "asked": asked, **older}


def _with_older_error(value: Any) -> Any:
    """Return an answer with the error that clients of older versions get instead of PRODUCER_FENCED (KIP-588)."""
    if isinstance(value, Mapping):
        return {name: _with_older_error(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_older_error(each) for each in value]
    return "INVALID_PRODUCER_EPOCH" if value == "PRODUCER_FENCED" else value


def _without(value: Any, dropped: frozenset[str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _without(each, dropped) for name, each in value.items() if name not in dropped}
    return [_without(each, dropped) for each in value] if isinstance(value, list) else value


def _dropped(lowered: Lowered, kind: Any) -> frozenset[str]:
    """Return the fields of the wanted version that the older version lacks."""
    wanted = field_names(lowered.key, lowered.wanted, kind)
    return wanted - field_names(lowered.key, lowered.version, kind)


@cache
def field_names(key: int, version: int, kind: Any) -> frozenset[str]:
    """Return the names of all fields of a message; `kind` is "request" or "response"."""
    return frozenset(_names(message_type(key, version, kind)))


def _names(entity: KioType) -> Iterator[str]:
    schema = schema_of(entity)
    for field in schema.fields + schema.tagged:
        yield field.name
        if field.entity is not None:
            yield from _names(field.entity)


def _name(key: int) -> str:
    return APIS[key].name.replace("_", " ").title().replace(" ", "") if key in APIS else f"API {key}"
