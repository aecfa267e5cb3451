"""Questions about one config: which values it takes, and what becomes of it when it is set and deleted.

Values are only validated, and their error codes observed as one table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from raftlog_chaos.conformance.session import Session

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
TOPIC: Final = 2
BROKER: Final = 4
LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
TYPES: Final = dict(
    enumerate(["boolean", "string", "int", "short", "long", "double", "list", "class", "password"], 1)
)
DEFAULT_SOURCE: Final = 5

NUMBERS: Final = (
    *(
        "",
        " ",
        "x",
        "1.5",
        "1e3",
        "0x10",
        "1_0",
        "+7",
        " 7 ",
        "07",
        "-7",
        "-3",
        "-2",
        "-1",
        "0",
        "1",
        "2",
        "14",
    ),
    *("100", "1000", "1048576", "1048577", str(2**31 - 1), str(2**31), str(-(2**31) - 1)),
    *(str(2**63 - 1), str(2**63), "1,2", "१"),
)
WORDS: Final = ("", " ", "x", "a b", "true", "1", "a,b", "*", "x" * 300)
VALUES: Final[Mapping[str, Sequence[str]]] = {
    "boolean": ("true", "false", "TRUE", " true ", "", "yes", "1", "0", "t", "true,false"),
    "int": NUMBERS,
    "short": NUMBERS,
    "long": NUMBERS,
    "double": (*NUMBERS, "0.5", ".5", "1.0", "1.01", "-0.1", "NaN", "Infinity", "1e-1", "1d", "0.5f"),
    "string": WORDS,
    "class": WORDS,
    "password": WORDS,
    "list": (*WORDS, ",", ",,", "a,,b", "a,a", " a , b "),
}
"""Values for each type: valid values, at bounds, beyond bounds, and of other types."""
OWN_VALUES: Final[dict[str, Sequence[str]]] = {
    "cleanup.policy": (
        "delete",
        "compact",
        "compact,delete",
        "delete,delete",
        " delete , compact ",
        "Delete",
    ),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime", "NoTimestampType"),
    "compression.type": ("gzip", "zstd", "producer", "uncompressed", "none", "GZIP", "snappy", "lz4"),
    "leader.replication.throttled.replicas": ("0:1", "0:1,1:2", "0:x", "0", "0:1:2", "*,0:1", "-1:1", "none"),
    "share.auto.offset.reset": ("earliest", "latest", "by_duration:PT1H", "by_duration:-PT1H", "none"),
    "share.isolation.level": ("read_committed", "READ_COMMITTED", "read_uncommitted"),
    "match": ("client_id=a", "client_id=a,client_source_port=1", "client_id=[", "no_such=a", "client_id="),
    "metrics": ("org.apache.", "*", "org.apache.,"),
    "interval.ms": ("100", "99", "3600000", "3600001"),
    "consumer.session.timeout.ms": ("45000", "60000", "60001", "44999"),
    "consumer.heartbeat.interval.ms": ("5000", "15000", "15001", "4999"),
}
OWN_VALUES_OF: Final = OWN_VALUES | {
    "follower.replication.throttled.replicas": OWN_VALUES["leader.replication.throttled.replicas"],
    "log.cleanup.policy": OWN_VALUES["cleanup.policy"],
    "log.message.timestamp.type": OWN_VALUES["message.timestamp.type"],
}


class Config(NamedTuple):
    """A config of one kind of resource."""

    name: str
    kind: str

    @property
    def values(self) -> Sequence[str]:
        """Values that it takes, and others that it refuses."""
        return (*VALUES[self.kind], *OWN_VALUES_OF.get(self.name, ()))


def rows(kinds: Mapping[str, str]) -> dict[str, Config]:
    """Return a row for each config."""
    return {name: Config(name, kind) for name, kind in kinds.items()}


def alter(
    s: Session, kind: int, resource: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> str:
    """Alter configs of a resource, and return the name of its error."""
    configs = [{"name": name, "config_operation": does, "value": value} for name, does, value in changes]
    resources = [{"resource_type": kind, "resource_name": resource, "configs": configs}]
    answer = s.query("IncrementalAlterConfigs", 1, resources=resources, validate_only=validate_only)
    return str(answer["responses"][0]["error_code"])


def replace(
    s: Session, kind: int, resource: str, *configs: tuple[str, str | None], validate_only: bool = False
) -> str:
    """Replace all configs of a resource as AlterConfigs does, and return the name of its error."""
    wanted = [{"name": name, "value": value} for name, value in configs]
    resources = [{"resource_type": kind, "resource_name": resource, "configs": wanted}]
    answer = s.query("AlterConfigs", 2, resources=resources, validate_only=validate_only)
    return str(answer["responses"][0]["error_code"])


def entry(s: Session, kind: int, resource: str, name: str) -> Mapping[str, Any]:
    """Return what DescribeConfigs says of a config; {} if it is not known."""
    wanted = [{"resource_type": kind, "resource_name": resource, "configuration_keys": [name]}]
    answer = s.query("DescribeConfigs", 4, resources=wanted, include_synonyms=True)["results"][0]
    return next(iter(answer["configs"] or ()), {})


def shown(entry: Mapping[str, Any]) -> Any:
    """Return a config as a history shows it."""
    if not entry:
        return "not known"
    found = {name: entry[name] for name in ("value", "config_source", "is_sensitive", "read_only")}
    synonyms = [f"{each['name']}={each['value']} from {each['source']}" for each in entry["synonyms"]]
    return found | {"config_type": TYPES[entry["config_type"]], "synonyms": synonyms}


def values(s: Session, kind: int, resource: str, config: Config) -> None:
    """Observe which values a config takes, and which operations: each is only validated."""

    def error(does: int, value: str | None) -> str:
        return alter(s, kind, resource, (config.name, does, value), validate_only=True)

    s.observe("set", {repr(value): error(SET, value) for value in (*config.values, None)})
    good = different(config.kind, config.name)
    others = {
        f"{word} {value!r}": error(does, value)
        for word, does in {"append": APPEND, "subtract": SUBTRACT, "delete": DELETE}.items()
        for value in (good, "x y z", "", None)
    }
    s.observe("other operations", others)


def replaced(s: Session, kind: int, resource: str, config: Config) -> None:
    """Observe what AlterConfigs takes, validated only."""
    name, good = config.name, different(config.kind, config.name)
    taken = {
        repr(value): replace(s, kind, resource, (name, value), validate_only=True)
        for value in (good, "x y z", "", None)
    }
    twice = replace(s, kind, resource, (name, good), (name, good), validate_only=True)
    s.observe("AlterConfigs", taken | {"twice": twice})


def life(s: Session, kind: int, resource: str, name: str, value: str) -> None:
    """Set a config, delete it, set it with AlterConfigs, and have that delete it too; observe it each time."""

    def holds(wanted: str | None) -> Callable[[], bool]:
        return lambda: (entry(s, kind, resource, name)["value"] == wanted) is True

    before = entry(s, kind, resource, name)
    if not before:
        s.observe("before", shown(before))
        return
    s.observe("before", shown(before))
    s.observe("set", alter(s, kind, resource, (name, SET, value)))
    s.wait("it holds", holds(value))
    s.observe("then", shown(entry(s, kind, resource, name)))
    s.observe("delete", alter(s, kind, resource, (name, DELETE, None)))
    s.wait("it holds no more", holds(before["value"]))
    s.observe("AlterConfigs", replace(s, kind, resource, (name, value)))
    s.wait("it holds", holds(value))
    s.observe("AlterConfigs of none", replace(s, kind, resource))
    s.wait("it holds no more", holds(before["value"]))


DIFFERENT: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "compression.type": "zstd",
    "unclean.leader.election.enable": "true",
    "preallocate": "true",
    "leader.replication.throttled.replicas": "0:1",
    "follower.replication.throttled.replicas": "*",
    "compression.gzip.level": "5",
    "compression.lz4.level": "5",
    "compression.zstd.level": "5",
    "min.cleanable.dirty.ratio": "0.25",
    "segment.bytes": "1048577",
    "min.insync.replicas": "1",
    "local.retention.ms": "1000",
    "local.retention.bytes": "1000",
    "retention.bytes": "2000",
    "consumer.session.timeout.ms": "50000",
    "consumer.heartbeat.interval.ms": "6000",
    "match": "client_id=a",
    "metrics": "org.apache.",
    "share.auto.offset.reset": "earliest",
    "share.isolation.level": "read_committed",
    "share.renew.acknowledge.enable": "false",
    "share.session.timeout.ms": "50000",
    "share.heartbeat.interval.ms": "6000",
    "share.delivery.count.limit": "6",
    "share.partition.max.record.locks": "1000",
    "share.record.lock.duration.ms": "20000",
    "streams.session.timeout.ms": "50000",
    "streams.heartbeat.interval.ms": "6000",
    "streams.num.standby.replicas": "1",
}
"""A right value of a config that is not its default, where `different` cannot say it by its type."""
_BY_KIND: Final = {
    "boolean": "true",
    "string": "x",
    "class": "x",
    "password": "x",
    "list": "x",
    "double": "0.25",
}


def different(kind: str, name: str) -> str:
    """Return a right value that is not the default."""
    return DIFFERENT.get(name, _BY_KIND.get(kind, "5000"))


def own_id(s: Session) -> str:
    """Return the name of the broker's own resource."""
    return str(s.query("Metadata", 9, topics=[])["brokers"][0]["node_id"])
