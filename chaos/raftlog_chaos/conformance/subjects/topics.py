"""Topics and partitions from creation to deletion, and what Metadata and DescribeTopicPartitions say of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.session import TIMEOUT_MS, Session

NO_ID: Final = "00000000-0000-0000-0000-000000000000"
NEW_ID: Final = "00000000-0000-0000-0000-00000000002a"
"""An id that no topic has."""
PLAIN: Final = 4
"""The newest version of CreateTopics without all configs in its answers."""
MAX32: Final = 2**31 - 1
Fields = Mapping[str, Any]
Topics = Callable[[Session], Sequence[Fields]]


def new(name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> Fields:
    """Return the part of a request that creates a topic."""
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas} | fields


def create(s: Session, *topics: Fields, version: int = PLAIN, **fields: Any) -> None:
    """Create topics, observed, and wait until the broker knows them. Their configs are left to another subject."""
    given = {"timeout": TIMEOUT_MS} | fields
    if version <= PLAIN:
        answer = s.ask("CreateTopics", version, topics=topics, **given)
    else:
        answer = s.query("CreateTopics", version, topics=topics, **given)
        found = [{name: each[name] for name in each if name != "configs"} for each in answer["topics"]]
        s.observe(f"the answer to CreateTopics v{version}", found)
    for each in answer["topics"]:
        if each["error_code"] == "NONE" and not fields.get("validate_only"):
            s.wait("it is there", partial(_has, s, each["name"]))


def metadata(s: Session, *names: str, version: int = 9, **fields: Any) -> None:
    """Ask for some topics by name, observed, which creates none unless `fields` say so."""
    given = {"allow_auto_topic_creation": False} | fields
    s.ask("Metadata", version, topics=[{"name": each} for each in names], **given)


def broker(s: Session) -> int:
    """Return the id of the broker."""
    return int(s.query("Metadata", 9, topics=[])["brokers"][0]["node_id"])


# --- creation


@history({f"v{version}": version for version in range(2, 8)})
def create_in(s: Session, version: int) -> None:
    """All versions from 2 on create topics; later versions answer with more."""
    name = s.name("topic")
    create(s, new(name, 2, configs=[{"name": "retention.ms", "value": "1000"}]), version=version)
    create(s, new(name), version=version)
    metadata(s, name)


NAMES: Final[dict[str, Callable[[Session], str]]] = {
    "empty": lambda s: "",
    "one dot": lambda s: ".",
    "two dots": lambda s: "..",
    "three dots": lambda s: s.name("..."),
    "a space": lambda s: s.name("a b"),
    "a slash": lambda s: s.name("a/b"),
    "a colon": lambda s: s.name("a:b"),
    "an umlaut": lambda s: s.name("ä"),
    "a zero byte": lambda s: s.name("a\0b"),
    "a line feed": lambda s: s.name("topic") + "\n",
    "all that is allowed": lambda s: s.name("aZ09._-"),
    "249 characters": lambda s: s.name("x" * 240),
    "250 characters": lambda s: s.name("x" * 241),
    "two underscores": lambda s: s.name("__topic"),
    "an internal one": lambda s: "__consumer_offsets",
    "another internal one": lambda s: "__transaction_state",
    "the metadata's": lambda s: "__cluster_metadata",
}


@history(NAMES)
def name(s: Session, name: Callable[[Session], str]) -> None:
    """A name has 1 to 249 letters, digits, dots, underscores and dashes, and is neither . nor .. ."""
    made = name(s)
    create(s, new(made), validate_only=True)
    metadata(s, made)


@history()
def names_that_differ_in_case(s: Session) -> None:
    """Capital letters make another topic."""
    name = s.name("topic")
    create(s, new(name))
    create(s, new(f"{name}-A"), new(f"{name}-a"))


COUNTS: Final[dict[str, tuple[int, int]]] = {
    f"{partitions} partitions, {replicas} replicas": (partitions, replicas)
    for partitions, replicas in (
        *((0, 1), (-1, 1), (-2, 1), (1, 0), (1, -1), (1, -2), (1, 2), (1, 2**15 - 1)),
        *((-1, -1), (0, 0), (-2, -2), (0, 2), (MAX32, 1)),
    )
}


@history(COUNTS)
def counts(s: Session, row: tuple[int, int]) -> None:
    """Both numbers are at least 1, or -1 for the broker's default; there are no more replicas than brokers."""
    name = s.name("topic")
    create(s, new(name, *row))
    metadata(s, name)


@history({f"v{version}": version for version in (2, 3, 4)})
def counts_by_default(s: Session, version: int) -> None:
    """Version 4 is the first version in which the broker may choose, by KIP-464; brokers do so in all versions."""
    name = s.name("topic")
    create(s, new(name, -1, -1), version=version)
    metadata(s, name)


def manual(*partitions: tuple[int, Sequence[int]]) -> Sequence[Fields]:
    """Return an assignment: for each partition its replicas."""
    return [{"partition_index": index, "broker_ids": replicas} for index, replicas in partitions]


MANUAL: Final[dict[str, Callable[[int], Fields]]] = {
    "right": lambda me: new("", -1, -1, assignments=manual((0, [me]), (1, [me]))),
    "unordered": lambda me: new("", -1, -1, assignments=manual((1, [me]), (0, [me]))),
    "with counts": lambda me: new("", 1, 1, assignments=manual((0, [me]))),
    "with a count of partitions": lambda me: new("", 1, -1, assignments=manual((0, [me]))),
    "with a count of replicas": lambda me: new("", -1, 1, assignments=manual((0, [me]))),
    "from 1": lambda me: new("", -1, -1, assignments=manual((1, [me]))),
    "with a gap": lambda me: new("", -1, -1, assignments=manual((0, [me]), (2, [me]))),
    "a partition twice": lambda me: new("", -1, -1, assignments=manual((0, [me]), (0, [me]))),
    "a partition of -1": lambda me: new("", -1, -1, assignments=manual((-1, [me]))),
    "no replica": lambda me: new("", -1, -1, assignments=manual((0, []))),
    "a replica twice": lambda me: new("", -1, -1, assignments=manual((0, [me, me]))),
    "an unknown broker": lambda me: new("", -1, -1, assignments=manual((0, [me + 70]))),
    "an unknown broker too": lambda me: new("", -1, -1, assignments=manual((0, [me, me + 70]))),
    "a broker of -1": lambda me: new("", -1, -1, assignments=manual((0, [-1]))),
    "sizes that differ": lambda me: new("", -1, -1, assignments=manual((0, [me]), (1, [me, me + 70]))),
}


@history(MANUAL)
def assignment(s: Session, topic: Callable[[int], Fields]) -> None:
    """A manual assignment numbers partitions from 0 and names registered brokers, each once."""
    name = s.name("topic")
    create(s, {**topic(broker(s)), "name": name})
    metadata(s, name)


def configured(s: Session, *configs: tuple[str, str | None]) -> Fields:
    """Return a topic with configs."""
    return new(s.name("topic"), configs=[{"name": name, "value": value} for name, value in configs])


CONFIGURED: Final[dict[str, Sequence[tuple[str, str | None]]]] = {
    "an unknown config": [("no.such.config", "1")],
    "a broker's config": [("log.retention.ms", "1000")],
    "a wrong type": [("retention.ms", "soon")],
    "out of range": [("retention.ms", "-2")],
    "without a value": [("retention.ms", None)],
    "an empty value": [("retention.ms", "")],
    "an empty name": [("", "1")],
    "the same twice": [("retention.ms", "1000"), ("retention.ms", "1000")],
    "twice": [("retention.ms", "1000"), ("retention.ms", "2000")],
    "with blanks": [("retention.ms", " 1000 ")],
    "min above max": [("min.compaction.lag.ms", "2"), ("max.compaction.lag.ms", "1")],
    "tiered": [("remote.storage.enable", "true")],
}


@history(CONFIGURED)
def create_with(s: Session, configs: Sequence[tuple[str, str | None]]) -> None:
    """A topic with a wrong config is not created."""
    topic = configured(s, *configs)
    create(s, topic)
    resource = {"resource_type": 2, "resource_name": topic["name"], "configuration_keys": ["retention.ms"]}
    s.ask("DescribeConfigs", 4, resources=[resource])


ASKED: Final[dict[str, Topics]] = {
    "none": lambda s: [],
    "twice": lambda s: [new(s.name("a"))] * 2,
    "twice, and another": lambda s: [new(s.name("a")), new(s.name("a"), 2), new(s.name("b"))],
    "a bad one between": lambda s: [new(s.name("a")), new(s.name("b"), 0), new(s.name("c"))],
    "a bad name twice": lambda s: [new("a b"), new("a b")],
    "bad in two ways": lambda s: [new("a b", 0, 0)],
}


@history(ASKED)
def create_several(s: Session, topics: Topics) -> None:
    """Each topic is created or refused by itself; a name that stands twice is refused."""
    create(s, *topics(s))
    metadata(s, s.name("a"), s.name("b"))


@history(ASKED)
def validate_several(s: Session, topics: Topics) -> None:
    """To validate is to be answered in the same way, and to create no topic."""
    create(s, *topics(s), validate_only=True)
    metadata(s, s.name("a"), s.name("b"))


@history({f"v{version}": version for version in (2, 5, 7)})
def validate_only_in(s: Session, version: int) -> None:
    """A topic that is only validated is not there, and its name is free."""
    name = s.name("topic")
    create(s, new(name, 3), version=version, validate_only=True)
    metadata(s, name)
    create(s, new(name, 2))
    create(s, new(name, 2), version=version, validate_only=True)


@history({str(timeout): timeout for timeout in (0, -1)})
def create_within(s: Session, timeout: int) -> None:
    """A timeout that has passed already is answered as a timeout, and no topic is created."""
    name = s.name("topic")
    s.ask("CreateTopics", PLAIN, topics=[new(name)], timeout=timeout)
    create(s, new(name))


def _has(s: Session, name: str, partitions: int = 1) -> bool:
    """Whether the broker knows so many partitions of a topic, all with a leader."""
    answer = s.query("Metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=False)["topics"][0]
    led = [each for each in answer["partitions"] if each["leader_id"] != -1]
    return answer["error_code"] == "NONE" and len(led) >= partitions


def _is_gone(s: Session, name: str) -> bool:
    answer = s.query("Metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=False)["topics"][0]
    return bool(answer["error_code"] == "UNKNOWN_TOPIC_OR_PARTITION")


# --- growth


@history({f"v{version}": version for version in range(4)})
def grow_in(s: Session, version: int) -> None:
    """All versions add partitions."""
    name = s.topic()
    grow(s, {"name": name, "count": 3, "assignments": None}, version=version)
    metadata(s, name)


def grow(s: Session, *topics: Fields, version: int = 3, **fields: Any) -> None:
    """Add partitions, observed, and wait until the broker knows them."""
    answer = s.ask("CreatePartitions", version, topics=topics, **({"timeout": TIMEOUT_MS} | fields))
    for topic, each in zip(topics, answer.get("results", ()), strict=False):
        if each["error_code"] == "NONE" and not fields.get("validate_only"):
            s.wait("they are there", partial(_has, s, each["name"], topic["count"]))


Growth = Callable[[int], tuple[int, Sequence[Sequence[int]] | None]]
GROWTHS: Final[dict[str, Growth]] = {
    "as many": lambda me: (2, None),
    "fewer": lambda me: (1, None),
    "0": lambda me: (0, None),
    "-1": lambda me: (-1, None),
    "too many": lambda me: (MAX32, None),
    "assigned": lambda me: (4, [[me], [me]]),
    "no assignment": lambda me: (4, []),
    "too few assignments": lambda me: (4, [[me]]),
    "too many assignments": lambda me: (3, [[me], [me]]),
    "assigned to an unknown broker": lambda me: (3, [[me + 70]]),
    "assigned to -1": lambda me: (3, [[-1]]),
    "assigned twice": lambda me: (3, [[me, me]]),
    "assigned nowhere": lambda me: (3, [[]]),
    "assigned to two": lambda me: (3, [[me, me + 70]]),
    "fewer, assigned": lambda me: (1, [[me]]),
}


@history(GROWTHS)
def growth(s: Session, growth: Growth) -> None:
    """A topic gets more partitions than it had, with as many assignments as are new, if any."""
    name = s.topic(partitions=2)
    count, assignments = growth(broker(s))
    given = None if assignments is None else [{"broker_ids": each} for each in assignments]
    grow(s, {"name": name, "count": count, "assignments": given}, validate_only=True)
    grow(s, {"name": name, "count": count, "assignments": given})
    metadata(s, name)


GROWN: Final[dict[str, Callable[[Session, str], Sequence[tuple[str, int]]]]] = {
    "none": lambda s, topic: [],
    "unknown": lambda s, topic: [(s.name("missing"), 2)],
    "empty": lambda s, topic: [("", 2)],
    "a bad name": lambda s, topic: [("a b", 2)],
    "twice": lambda s, topic: [(topic, 2), (topic, 2)],
    "twice, and another": lambda s, topic: [(topic, 2), (topic, 3), (s.name("missing"), 2)],
    "good and bad": lambda s, topic: [(topic, 2), (s.name("missing"), 2)],
    "an internal one": lambda s, topic: [("__consumer_offsets", 1)],
}


@history(GROWN)
def grow_several(s: Session, topics: Callable[[Session, str], Sequence[tuple[str, int]]]) -> None:
    """Each topic grows or is refused by itself."""
    name = s.topic()
    grow(s, *({"name": each, "count": count, "assignments": None} for each, count in topics(s, name)))
    metadata(s, name)


# --- deletion


@history({f"v{version}": version for version in range(1, 6)})
def delete_in(s: Session, version: int) -> None:
    """Versions 1 to 5 delete topics by their names; an unknown name is refused."""
    name = s.topic()
    for _ in range(2):
        s.ask("DeleteTopics", version, topic_names=[name], timeout=TIMEOUT_MS)
    s.wait("it is gone", lambda: _is_gone(s, name))


DELETED: Final[dict[str, Callable[[Session, str], Sequence[Fields]]]] = {
    "none": lambda s, topic: [],
    "by name": lambda s, topic: [{"name": topic}],
    "by id": lambda s, topic: [{"name": None, "topic_id": s.topic_id(topic)}],
    "by both": lambda s, topic: [{"name": topic, "topic_id": s.topic_id(topic)}],
    "by name and another's id": lambda s, topic: [{"name": topic, "topic_id": NEW_ID}],
    "by neither": lambda s, topic: [{"name": None, "topic_id": NO_ID}],
    "an empty name": lambda s, topic: [{"name": ""}],
    "a bad name": lambda s, topic: [{"name": "a b"}],
    "unknown": lambda s, topic: [{"name": s.name("missing")}],
    "an unknown id": lambda s, topic: [{"name": None, "topic_id": NEW_ID}],
    "a name twice": lambda s, topic: [{"name": topic}, {"name": topic}],
    "an id twice": lambda s, topic: [{"name": None, "topic_id": s.topic_id(topic)}] * 2,
    "by name, and by id": lambda s, topic: [{"name": topic}, {"name": None, "topic_id": s.topic_id(topic)}],
    "an unknown name twice": lambda s, topic: [{"name": s.name("missing")}] * 2,
    "an unknown id twice": lambda s, topic: [{"name": None, "topic_id": NEW_ID}] * 2,
    "good and bad": lambda s, topic: [{"name": topic}, {"name": s.name("missing")}],
    "the metadata's": lambda s, topic: [{"name": "__cluster_metadata"}],
}


@history(DELETED)
def delete(s: Session, topics: Callable[[Session, str], Sequence[Fields]]) -> None:
    """Version 6 deletes by name or by id, not by both; each topic succeeds or fails by itself."""
    name = s.topic()
    answer = s.ask("DeleteTopics", 6, topics=topics(s, name), timeout=TIMEOUT_MS)
    if any(each["error_code"] == "NONE" for each in answer["responses"]):
        s.wait("it is gone", lambda: _is_gone(s, name))
    metadata(s, name)


@history()
def a_name_that_was_deleted(s: Session) -> None:
    """A topic that is created again has a new id, no records, and none of the old configs."""
    name = s.topic(configs={"retention.ms": 1000})
    s.produce(name, s.batch(b"a"))
    s.ask("DeleteTopics", 6, topics=[{"name": name}], timeout=TIMEOUT_MS)
    s.wait("it is gone", lambda: _is_gone(s, name))
    create(s, new(name, 2), version=7)
    s.observe("the id is a new one", _id(s, name) != s.topic_id(name))
    s.wait("it is served", lambda: s.end_offset(name) == 0)
    s.read(name)


def _id(s: Session, name: str) -> str:
    return str(s.query("Metadata", 12, topics=[{"name": name}])["topics"][0]["topic_id"])


# --- Metadata


@history({f"v{version}": version for version in range(14)})
def metadata_in(s: Session, version: int) -> None:
    """Every version describes a topic, and reports an unknown topic as unknown."""
    name = s.topic(partitions=2)
    metadata(s, name, s.name("missing"), version=version)


@history({f"v{version}": version for version in (0, 1, 9, 12)})
def metadata_without_topics(s: Session, version: int) -> None:
    """No topic is asked for: the brokers alone, except in version 0, in which all topics are meant."""
    if version:
        metadata(s, version=version)
    else:
        name = s.topic()
        answer = s.query("Metadata", 0, topics=[])
        s.observe("all topics", name in {each["name"] for each in answer["topics"]})


@history({f"v{version}": version for version in (1, 9, 12)})
def metadata_of_all(s: Session, version: int) -> None:
    """Null requests all topics, which include the new topic."""
    name = s.topic(partitions=2)
    answer = s.query("Metadata", version, topics=None)
    s.observe("the topic", [each for each in answer["topics"] if each["name"] == name])


METADATA: Final[dict[str, Callable[[Session, str], Sequence[Fields]]]] = {
    "twice": lambda s, topic: [{"name": topic}, {"name": topic}],
    "unknown twice": lambda s, topic: [{"name": s.name("missing")}] * 2,
    "an empty name": lambda s, topic: [{"name": ""}],
    "a bad name": lambda s, topic: [{"name": "a b"}, {"name": topic}],
    "a long name": lambda s, topic: [{"name": "x" * 250}],
    "two dots": lambda s, topic: [{"name": ".."}],
    "an internal one": lambda s, topic: [{"name": "__cluster_metadata"}],
}


@history(METADATA)
def metadata_of(s: Session, topics: Callable[[Session, str], Sequence[Fields]]) -> None:
    """Odd names are answered with their errors."""
    s.ask("Metadata", 9, topics=topics(s, s.topic()), allow_auto_topic_creation=False)


BY_ID: Final[dict[str, Callable[[Session, str], Sequence[Fields]]]] = {
    "one": lambda s, topic: [{"topic_id": s.topic_id(topic), "name": None}],
    "twice": lambda s, topic: [{"topic_id": s.topic_id(topic), "name": None}] * 2,
    "unknown": lambda s, topic: [{"topic_id": NEW_ID, "name": None}],
    "with its name": lambda s, topic: [{"topic_id": s.topic_id(topic), "name": topic}],
    "with another name": lambda s, topic: [{"topic_id": s.topic_id(topic), "name": s.name("missing")}],
    "and by name": lambda s, topic: [
        {"topic_id": s.topic_id(topic), "name": None},
        {"topic_id": NO_ID, "name": topic},
    ],
    "neither": lambda s, topic: [{"topic_id": NO_ID, "name": None}],
    "unknown, and known": lambda s, topic: [
        {"topic_id": NEW_ID, "name": None},
        {"topic_id": s.topic_id(topic), "name": None},
    ],
}


@history({f"{row} in v{version}": (topics, version) for row, topics in BY_ID.items() for version in (10, 12)})
def metadata_by_id(s: Session, row: tuple[Callable[[Session, str], Sequence[Fields]], int]) -> None:
    """Topics are asked for by id from version 12 on; one question has names or ids."""
    topics, version = row
    s.ask("Metadata", version, topics=topics(s, s.topic()), allow_auto_topic_creation=False)


@history({f"v{version}": version for version in (7, 8, 10, 12)})
def metadata_with_operations(s: Session, version: int) -> None:
    """Without an authorizer all operations are allowed, and are listed if they are asked for."""
    metadata(
        s,
        s.topic(),
        version=version,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )


# --- topics that Metadata creates

AUTO: Final = {"auto.create.topics.enable": "true", "num.partitions": "2"}


@history({f"v{version}": version for version in (0, 3, 4, 9, 13)}, settings=AUTO)
def created_by_metadata_in(s: Session, version: int) -> None:
    """A topic that is asked for is created with the broker's numbers."""
    name = s.name("topic")
    s.query("Metadata", version, topics=[{"name": name}], allow_auto_topic_creation=True)
    s.wait("it is there", lambda: _has(s, name, 2))
    metadata(s, name)


@history({"first": False, "forbidden": True}, settings=AUTO)
def answer_to_what_is_created(s: Session, forbidden: bool) -> None:
    """The topic is not there yet in the first answer, and is not created if the question forbids it."""
    name = s.name("topic")
    metadata(s, name, allow_auto_topic_creation=not forbidden)
    if forbidden:
        metadata(s, name)


UNCREATED: Final[dict[str, Callable[[Session], str]]] = {
    row: NAMES[row] for row in ("empty", "one dot", "a space", "250 characters", "a zero byte")
}


@history(UNCREATED, settings=AUTO)
def not_created_by_metadata(s: Session, name: Callable[[Session], str]) -> None:
    """A name that no topic can have is refused."""
    metadata(s, name(s), allow_auto_topic_creation=True)


@history(settings=AUTO)
def created_by_no_other_request(s: Session) -> None:
    """Produce and ListOffsets create no topic."""
    name = s.name("topic")
    data = [{"name": name, "partition_data": [{"index": 0, "records": s.batch(b"a")}]}]
    s.ask("Produce", 9, acks=-1, timeout=TIMEOUT_MS, topic_data=data)
    wanted = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    s.ask("ListOffsets", 7, replica_id=-1, topics=wanted)
    metadata(s, name)


# --- DescribeTopicPartitions


def pages(s: Session, names: Iterable[str], limit: int, cursor: Fields | None = None) -> None:
    """Ask for page after page, observed, until no cursor is left."""
    for _ in range(8):
        answer = s.ask(
            "DescribeTopicPartitions",
            0,
            topics=[{"name": each} for each in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        cursor = answer["next_cursor"]
        if cursor is None:
            break


@history({str(limit): limit for limit in (1, 2, 3, 4, 5, 2000, 2001, MAX32)})
def pages_of(s: Session, limit: int) -> None:
    """Partitions come in pages; a cursor names the first partition of the next page."""
    names = [s.topic("b", partitions=2), s.topic("a", partitions=3)]
    pages(s, [*names, s.name("missing")], limit)


@history({str(limit): limit for limit in (0, -1)})
def pages_of_none(s: Session, limit: int) -> None:
    """A page has at least one partition."""
    name = s.topic()
    s.ask("DescribeTopicPartitions", 0, topics=[{"name": name}], response_partition_limit=limit)


CURSORS: Final[dict[str, Callable[[Session], Fields]]] = {
    "in the first": lambda s: {"topic_name": s.name("a"), "partition_index": 1},
    "in the second": lambda s: {"topic_name": s.name("b"), "partition_index": 0},
    "after the last partition": lambda s: {"topic_name": s.name("a"), "partition_index": 2},
    "far after it": lambda s: {"topic_name": s.name("a"), "partition_index": MAX32},
    "at -1": lambda s: {"topic_name": s.name("a"), "partition_index": -1},
    "at a missing topic": lambda s: {"topic_name": s.name("aa"), "partition_index": 0},
    "before all": lambda s: {"topic_name": "0", "partition_index": 0},
    "after all": lambda s: {"topic_name": "zz", "partition_index": 0},
    "without a name": lambda s: {"topic_name": "", "partition_index": 0},
}


@history(CURSORS)
def cursor(s: Session, cursor: Callable[[Session], Fields]) -> None:
    """A cursor leaves out the topics before it; at a deleted topic it goes on with the next topic."""
    names = [s.topic("a", partitions=2), s.topic("b")]
    pages(s, names, 10, cursor(s))


@history({"twice": 2, "an empty name": "", "a bad name": "a b", "two dots": ".."})
def describe_odd(s: Session, row: int | str) -> None:
    """Odd names are answered with their errors."""
    pages(s, [s.topic()] * row if isinstance(row, int) else [row], 10)


@history()
def describe_all(s: Session) -> None:
    """No topic is asked for: all are described, in the order of their names."""
    names = [s.topic("b"), s.topic("a", partitions=2)]
    answer = s.query("DescribeTopicPartitions", 0, topics=[], response_partition_limit=2000)
    s.observe("the topics", [each for each in answer["topics"] if each["name"] in names])
