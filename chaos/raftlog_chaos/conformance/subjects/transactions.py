"""Transactions: bumps, retries, takeovers, time-outs and markers, in both protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raftlog.records.header import CONTROL_BIT, TRANSACTIONAL_BIT
from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.session import Session
from raftlog_chaos.conformance.transacting import Transacting

MADE_UP: Final = 5_000_000
"""A producer id that no broker of these histories hands out."""

SCRIPTS: Final = {
    "committed": "init begin send send describe read commit describe read",
    "aborted": "init begin send send abort describe read",
    "two after each other": "init begin send commit begin send abort read",
    "committed twice": "init begin send commit commit read",
    "committed, then aborted": "init begin send commit abort read",
    "aborted twice": "init begin send abort abort read",
    "aborted, then committed": "init begin send abort commit read",
    "nothing to commit": "init commit describe",
    "nothing to abort": "init abort describe",
    "no record": "init add commit describe read",
    "no record, aborted": "init add abort describe read",
    "a commit whose answer is lost": "init begin send commit as-before commit describe",
    "an abort whose answer is lost": "init begin send abort as-before abort describe",
    "an abort after a lost commit": "init begin send commit as-before abort describe",
    "a batch sent again": "init begin send send-again commit read",
    "a batch sent again after the commit": "init begin send commit as-before send read",
    "a gap": "init begin send-gap send commit read",
    "a second batch out of order": "init begin send send-gap commit read",
    "not added": "init send describe commit read",
    "another partition, not added": "init begin send send-to-1 commit read",
    "both partitions": "init add-both send send-to-1 commit read",
    "added twice": "init add add send commit read",
    "without a transaction": "init send-plain describe read commit",
    "a plain batch within": "init begin send send-plain commit read",
    "a plain batch after": "init begin send commit send-plain read",
    "bumped when empty": "init bump describe begin send commit",
    "bumped within": "init begin send bump describe begin send commit read",
    "bumped after a commit": "init begin send commit bump describe",
    "bumped twice by a retry": "init bump as-before bump",
    "bumped to an epoch ahead": "init bump-ahead",
    "bumped for another id": "init bump-other",
    "taken over when empty": "init init as-before begin send commit read",
    "taken over within": "init begin send init describe read",
    "taken over, and the old one sends": "init begin send init as-before send read",
    "taken over, and the old one adds": "init begin send init as-before add",
    "taken over, and the old one commits": "init begin send init as-before commit read",
    "taken over, and the old one bumps": "init begin send init as-before bump",
    "taken over after a commit": "init begin send commit init as-before commit add",
    "an id that was never given out": "add send commit",
    "offsets committed": "init offsets fetch-offset fetch-stable commit fetch-offset fetch-stable state",
    "offsets aborted": "init offsets abort fetch-offset fetch-stable",
    "offsets and records": "init begin send offsets state commit fetch-stable read",
    "offsets not added": "init commit-offset fetch-offset state",
    "offsets added and not committed": "init add-offsets state commit fetch-offset",
    "offsets twice": "init offsets commit-offset commit fetch-offset",
    "offsets by an old one": "init offsets init as-before commit-offset add-offsets fetch-offset",
    "offsets after the commit": "init offsets commit commit-offset fetch-offset",
}
"""The words of a producer, by the name of the history; each runs in both protocols."""

LATE: Final = {
    "a late commit": "init begin send late commit read",
    "a late abort": "init begin send late abort read",
    "a late batch": "init begin send late send read",
    "a late partition": "init begin send late add",
    "a late bump": "init begin send late bump describe begin send commit read",
    "a late offset": "init offsets late commit-offset fetch-stable",
    "a new start after the time-out": "init begin send late init begin send commit read",
}
"""The words of a producer whose transaction exceeds its timeout."""


def in_both(scripts: Mapping[str, str]) -> Mapping[str, tuple[str, int]]:
    """Return a row for each script and protocol."""
    return {
        f"{name} in protocol {protocol}": (script, protocol)
        for name, script in scripts.items()
        for protocol in (1, 2)
    }


@history(in_both(SCRIPTS))
def producer(s: Session, row: tuple[str, int]) -> None:
    """A producer's transaction is committed or aborted as a whole, and no older producer takes part in it."""
    script, protocol = row
    Transacting(s, protocol).run(script)


@history(in_both(LATE), slow=True)
def timed_out(s: Session, row: tuple[str, int]) -> None:
    """The coordinator aborts a transaction that takes too long, and fences its producer."""
    script, protocol = row
    Transacting(s, protocol, timeout_ms=3000).run(script)


INITS: Final[dict[str, Mapping[str, Any]]] = {
    "no time": {"transaction_timeout": 0},
    "negative time": {"transaction_timeout": -1},
    "the longest time": {"transaction_timeout": 900_000},
    "too long a time": {"transaction_timeout": 900_001},
    "an empty id": {"transactional_id": ""},
    "no id, with a producer": {"transactional_id": None, "producer_id": 5, "producer_epoch": 3},
    "no id and no time": {"transactional_id": None, "transaction_timeout": 0},
    "a producer without an epoch": {"producer_id": 5},
    "an epoch without a producer": {"producer_epoch": 5},
    "a producer for a new id": {"producer_id": MADE_UP, "producer_epoch": 3},
    "the largest epoch": {"producer_id": MADE_UP, "producer_epoch": 2**15 - 1},
}


@history(INITS)
def init(s: Session, fields: Mapping[str, Any]) -> None:
    """A producer id is given for an allowed timeout, and to its present owner."""
    given = {"transactional_id": s.name("txn"), "transaction_timeout": 60_000, **fields}
    node = s.coordinator(given["transactional_id"], kind=1) if given["transactional_id"] else None
    s.ask("InitProducerId", 5, node=node, **given)


@history({f"v{version}": version for version in range(6)})
def init_version(s: Session, version: int) -> None:
    """Every version gives an id, and its next epoch."""
    name = s.name("txn")
    for transactional_id in (name, name, None):
        node = s.coordinator(name, kind=1) if transactional_id else None
        s.ask(
            "InitProducerId",
            version,
            node=node,
            transactional_id=transactional_id,
            transaction_timeout=60_000,
        )


@history({f"v{version}": version for version in range(4)})
def add_version(s: Session, version: int) -> None:
    """Versions of clients add all partitions of one transaction, or none."""
    t = Transacting(s, 1)
    t.init()
    t.add(version, 0, 1)
    t.add(version, 1, 2)
    t.producer = (t.producer[0], 7)
    t.add(version, 0)
    t.producer = (MADE_UP, 0)
    t.add(version, 0)


@history(
    {f"v{version}{' verify' * verify}": (version, verify) for version in (4, 5) for verify in (False, True)}
)
def add_batched(s: Session, row: tuple[int, bool]) -> None:
    """Versions of brokers add or verify the partitions of several transactions."""
    version, verify_only = row
    one = Transacting(s, 1)
    other = Transacting(s, 1, word="other", topic=one.topic)
    one.init()
    one.add(3, 0)
    topics = [{"name": one.topic, "partitions": [0, 1]}]
    transactions = [
        {**each.ids, "topics": topics, "verify_only": verify_only}
        for each in (one, other)
        if each.node == one.node
    ]
    s.ask("AddPartitionsToTxn", version, node=one.node, transactions=transactions)
    s.ask("AddPartitionsToTxn", version, node=one.node, transactions=[])


ADDED: Final[dict[str, Any]] = {
    "no topic": lambda topic, missing: [],
    "no partition": lambda topic, missing: [{"name": topic, "partitions": []}],
    "a partition that is not there": lambda topic, missing: [{"name": topic, "partitions": [9]}],
    "a partition of -1": lambda topic, missing: [{"name": topic, "partitions": [-1]}],
    "a partition twice": lambda topic, missing: [{"name": topic, "partitions": [0, 0]}],
    "a topic twice": lambda topic, missing: [{"name": topic, "partitions": [each]} for each in (0, 1)],
    "a topic that is not there": lambda topic, missing: [{"name": missing, "partitions": [0]}],
    "one that is there and one that is not": lambda topic, missing: [
        {"name": each, "partitions": [0]} for each in (topic, missing)
    ],
    "an empty name": lambda topic, missing: [{"name": "", "partitions": [0]}],
    "the topic of committed offsets": lambda topic, missing: [
        {"name": "__consumer_offsets", "partitions": [0]}
    ],
    "the topic of transactions": lambda topic, missing: [{"name": "__transaction_state", "partitions": [0]}],
}


@history(ADDED)
def added(s: Session, topics: Any) -> None:
    """A partition that is not there is not added, nor any other with it."""
    t = Transacting(s, 1)
    t.init()
    fields = {**t.ids, "topics": topics(t.topic, s.name("missing"))}
    s.ask(
        "AddPartitionsToTxn",
        3,
        node=t.node,
        **{f"v3_and_below_{name}": value for name, value in fields.items()},
    )
    t.run("state")


@history({f"v{version}": version for version in range(6)})
def end_version(s: Session, version: int) -> None:
    """Every version ends a transaction; from 5 on the next epoch comes with it."""
    t = Transacting(s, 1)
    for committed in (True, False):
        t.run("init begin send")
        t.end(committed=committed, version=version)
    for producer in ((t.producer[0], 1000), (t.producer[0], -1), (MADE_UP, 0), (-1, -1)):
        t.producer = producer
        t.end(committed=True, version=version)


@history({f"v{version}": version for version in range(5)})
def add_offsets_version(s: Session, version: int) -> None:
    """Every version adds a group, for the right producer."""
    t = Transacting(s, 1)
    t.add_offsets(version)
    t.init()
    t.add_offsets(version)
    t.add_offsets(version)
    t.producer = (t.producer[0], 1000)
    t.add_offsets(version)
    t.group = ""
    t.add_offsets(version)


@history({f"v{version}": version for version in range(6)})
def offsets_version(s: Session, version: int) -> None:
    """Every version commits offsets within a transaction."""
    t = Transacting(s, 1)
    t.init()
    t.add_offsets()
    t.commit_offset(version, offset=3)
    t.commit_offset(version, offset=4)
    t.run("fetch-stable commit fetch-stable")


GROUPS: Final[dict[str, Mapping[str, Any]]] = {
    "a generation": {"generation_id": 1},
    "a member": {"member_id": "nobody"},
    "a member and a generation": {"member_id": "nobody", "generation_id": 1},
    "an instance": {"group_instance_id": "nobody"},
    "no group": {"group_id": ""},
    "no transactional id": {"transactional_id": ""},
    "another transactional id": {"transactional_id": "another"},
    "no partition": {"topics": []},
    "an older epoch": {"producer_epoch": -1},
    "a newer epoch": {"producer_epoch": 3},
    "another producer": {"producer_id": MADE_UP},
}


@history({f"{name} in protocol {each}": (fields, each) for name, fields in GROUPS.items() for each in (1, 2)})
def offsets_of(s: Session, row: tuple[Mapping[str, Any], int]) -> None:
    """Offsets are committed for a group that knows the member, and a producer that is not fenced."""
    fields, protocol = row
    t = Transacting(s, protocol)
    t.run("init add-offsets")
    t.commit_offset(**fields)
    t.run("commit fetch-stable")


@history()
def offsets_of_a_missing_topic(s: Session) -> None:
    """Offsets are committed for topics that exist."""
    t = Transacting(s, 1)
    t.run("init add-offsets")
    partitions: list[dict[str, Any]] = [
        {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    ]
    t.commit_offset(topics=[{"name": s.name("missing"), "partitions": partitions}])
    partitions = [{"partition_index": 9, "committed_offset": 1, "committed_metadata": "x" * 5000}]
    t.commit_offset(topics=[{"name": t.topic, "partitions": partitions}])
    t.run("commit fetch-stable")


FIELDS: Final[dict[str, Mapping[str, int]]] = {
    "not transactional": {"attributes": 0},
    "without a producer": {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1},
    "without a producer, with a sequence": {"producer_id": -1, "producer_epoch": -1, "base_sequence": 0},
    "without a sequence": {"base_sequence": -1},
    "without an epoch": {"producer_epoch": -1},
    "a newer epoch": {"producer_epoch": 1},
    "another producer": {"producer_id": MADE_UP},
    "control": {"attributes": TRANSACTIONAL_BIT | CONTROL_BIT},
}


@history({f"{name} in v{each}": (fields, each) for name, fields in FIELDS.items() for each in (3, 11, 12)})
def batch(s: Session, row: tuple[Mapping[str, int], int]) -> None:
    """A batch of a transaction is the producer's own, or it is refused."""
    fields, version = row
    t = Transacting(s, 1)
    t.run("init begin")
    usual = {
        "producer_id": t.producer[0],
        "producer_epoch": 0,
        "base_sequence": 0,
        "attributes": TRANSACTIONAL_BIT,
    }
    s.produce(t.topic, s.batch(b"a", **{**usual, **fields}), version=version, transactional_id=t.id)
    t.run("abort read")


@history({"none": None, "empty": "", "another": "another"})
def batch_of_another_id(s: Session, transactional_id: str | None) -> None:
    """A request names the transactional id of its batches."""
    t = Transacting(s, 1)
    t.run("init begin")
    header = {
        "producer_id": t.producer[0],
        "producer_epoch": 0,
        "base_sequence": 0,
        "attributes": TRANSACTIONAL_BIT,
    }
    s.produce(t.topic, s.batch(b"a", **header), version=11, transactional_id=transactional_id)
    t.run("abort read")


@history({"protocol 1": 1, "protocol 2": 2})
def two_at_once(s: Session, protocol: int) -> None:
    """The oldest open transaction sets the last stable offset; readers get the aborted transactions."""
    one = Transacting(s, protocol)
    other = Transacting(s, protocol, word="other", topic=one.topic)
    for producer, script in (
        *((one, "init"), (other, "init"), (one, "begin send"), (other, "begin send"), (one, "send read")),
        *((other, "abort read"), (other, "begin send"), (one, "commit read"), (other, "abort read")),
    ):
        producer.run(script)
    for offset in range(1, 8):
        s.fetch(one.topic, offset, isolation_level=1)
    s.fetch(one.topic, isolation_level=0)


@history({"protocol 1": 1, "protocol 2": 2})
def read_by_timestamp(s: Session, protocol: int) -> None:
    """Offsets of timestamps beyond the last stable offset are not given to readers of what is committed."""
    t = Transacting(s, protocol)
    s.produce(t.topic, s.batch(b"a"))
    t.run("init begin send")
    for isolation in (0, 1):
        for timestamp in (s.at(), s.at(1), -1, -2, -3):
            s.list_offsets(t.topic, timestamp, version=8, isolation=isolation)
    t.run("commit")
    s.list_offsets(t.topic, -3, version=8, isolation=1)


@history({"protocol 1": 1, "protocol 2": 2})
def records_deleted_within(s: Session, protocol: int) -> None:
    """Records of an open transaction can be deleted; then the last stable offset is the log's start."""
    t = Transacting(s, protocol)
    t.run("init begin send send")
    partitions = [{"partition_index": 0, "offset": -1}]
    s.ask(
        "DeleteRecords",
        2,
        node=s.leader(t.topic),
        topics=[{"name": t.topic, "partitions": partitions}],
        timeout=10_000,
    )
    s.list_offsets(t.topic, -1, version=6, isolation=1)
    s.fetch(t.topic, 2, isolation_level=1)
    t.run("send")
    s.fetch(t.topic, 2, isolation_level=1)
    t.run("describe commit")
    s.fetch(t.topic, 2, isolation_level=1)


@history({"protocol 1": 1, "protocol 2": 2})
def a_topic_deleted_within(s: Session, protocol: int) -> None:
    """A transaction in a deleted topic ends."""
    t = Transacting(s, protocol)
    t.run("init begin send")
    s.ask("DeleteTopics", 5, topic_names=[t.topic], timeout=10_000)
    t.run("commit state")


@history()
def described(s: Session) -> None:
    """Ids that are not there are an error each."""
    t = Transacting(s, 1)
    t.run("init begin")
    s.ask("DescribeTransactions", 0, node=t.node, transactional_ids=["", t.id, s.name("missing"), t.id])
    s.ask("DescribeTransactions", 0, node=t.node, transactional_ids=[])


FILTERS: Final[dict[str, Mapping[str, Any]]] = {
    "all": {},
    "ongoing": {"state_filters": ["Ongoing"]},
    "empty": {"state_filters": ["Empty"]},
    "a state that is none": {"state_filters": ["Ongoing", "Odd", "ongoing", ""]},
    "another producer": {"producer_id_filters": [MADE_UP]},
    "lasting": {"duration_filter": 0},
    "lasting long": {"duration_filter": 3_600_000},
    "a negative duration": {"duration_filter": -2},
}


@history({f"{name} in v{each}": (fields, each) for name, fields in FILTERS.items() for each in (0, 1, 2)})
def listed(s: Session, row: tuple[Mapping[str, Any], int]) -> None:
    """Transactional ids are listed by their states, producers and durations."""
    fields, version = row
    one = Transacting(s, 1)
    one.run("init begin")
    given = {"producer_id_filters": [one.producer[0]], **fields}
    s.ask("ListTransactions", version, node=one.node, **given)


PATTERNS: Final = {
    "a prefix": "txn.*",
    "part of it": "xn",
    "no pattern": "",
    "broken": "(",
    "no match": "z.*",
}


@history(PATTERNS)
def listed_by_pattern(s: Session, pattern: str) -> None:
    """A pattern matches the whole id."""
    one = Transacting(s, 1)
    one.run("init begin")
    s.ask(
        "ListTransactions",
        2,
        node=one.node,
        producer_id_filters=[one.producer[0]],
        transactional_id_pattern=pattern,
    )


@history()
def producers_described(s: Session) -> None:
    """Producers are described for partitions that are there."""
    topic = s.topic()
    producer = s.init_producer()["producer_id"]
    s.produce(topic, s.batch(b"a", b"b", producer_id=producer, producer_epoch=0, base_sequence=5))
    topics = [
        {"name": topic, "partition_indexes": [0, 1, -1]},
        {"name": s.name("missing"), "partition_indexes": [0]},
    ]
    s.ask("DescribeProducers", 0, node=s.leader(topic), topics=topics)
    s.ask("DescribeProducers", 0, node=s.leader(topic), topics=[])
