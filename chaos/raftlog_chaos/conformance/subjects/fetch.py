"""Fetch: versions, offsets, limits, waits, sessions, epochs and topic ids."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from raftlog.records.batch import new_record
from raftlog.testing.progress import patient
from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.messages import Message
from raftlog_chaos.conformance.session import FETCH_BYTES, Session

MAX32: Final = 2**31 - 1
MAX64: Final = 2**63 - 1
BY_ID: Final = 13
"""The first version that names topics by their ids."""
MADE_UP_SESSION: Final = 77
MADE_UP_ID: Final = "00000000-0000-0000-0000-00000000002a"
LONG_WAIT_MS: Final = 15_000
SEGMENT_MS: Final = 1_000
"""Batches with timestamps further apart than this are in different segments."""


def wanted(partition: int = 0, offset: int = 0, **fields: Any) -> Mapping[str, Any]:
    """Return what a request says of one partition."""
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES, **fields}


def fetch(
    s: Session, topic: str, *partitions: Mapping[str, Any], version: int = 12, **fields: Any
) -> Message:
    """Fetch partitions of a topic from its leader."""
    given = {"max_wait": 0, "min_bytes": 0, "max_bytes": FETCH_BYTES} | fields
    topics = [{"topic": topic, "topic_id": s.topic_id(topic), "partitions": partitions}]
    return s.ask("Fetch", version, node=s.leader(topic), topics=topics, **given)


def in_segments(s: Session, count: int = 3, **configs: int) -> str:
    """Return a topic with so many segments of a batch each."""
    topic = s.topic(configs={"segment.ms": SEGMENT_MS, **configs})
    for number in range(count):
        s.produce(topic, s.batch(new_record(b"k", b"x" * 20, timestamp=s.at(number * 10 * SEGMENT_MS))))
    return topic


def delete_to(s: Session, topic: str, offset: int) -> None:
    """Delete records before an offset."""
    partitions = [{"partition_index": 0, "offset": offset}]
    topics = [{"name": topic, "partitions": partitions}]
    s.ask("DeleteRecords", 2, node=s.leader(topic), topics=topics, timeout=10_000)


def observe_promptness(s: Session, began: float) -> None:
    """Observe whether an answer came well before a wait of LONG_WAIT_MS was over."""
    s.observe("it came at once", time.monotonic() - began < patient(LONG_WAIT_MS / 1000) / 2)


@history({f"v{version}": version for version in range(4, 19)})
def version(s: Session, version: int) -> None:
    """Every version is served, with what it can say."""
    topic = s.topic()
    s.produce(topic, s.batch(b"a", b"b"))
    s.produce(topic, s.batch(b"c"))
    for offset in (0, 1, 2, 3, 4):
        s.fetch(topic, offset, version=version)
    fetch(s, topic, wanted(7), version=version)
    missing = {"topic": s.name("missing"), "topic_id": MADE_UP_ID, "partitions": [wanted()]}
    s.ask("Fetch", version, max_wait=0, max_bytes=FETCH_BYTES, topics=[missing])


OFFSETS: Final = (0, 1, 2, 3, 4, 5, 6, 7, -1, -2, MAX64)


@history({f"isolation {isolation}": isolation for isolation in (0, 1, 2, -1)})
def offset(s: Session, isolation: int) -> None:
    """An offset within a batch gives the whole batch, an offset before the log's start or beyond its end an error."""
    topic = s.topic()
    for values in ((b"a", b"b"), (b"c", b"d"), (b"e", b"f")):
        s.produce(topic, s.batch(*values))
    delete_to(s, topic, 3)
    for each in OFFSETS:
        s.fetch(topic, each, isolation_level=isolation)


LIMITS: Final[dict[str, tuple[int, int]]] = {
    f"{whole} in all, {each} of each": (whole, each)
    for whole, each in (
        *((FETCH_BYTES, 0), (FETCH_BYTES, 1), (FETCH_BYTES, -1), (FETCH_BYTES, 80), (FETCH_BYTES, 200)),
        *((0, FETCH_BYTES), (1, FETCH_BYTES), (-1, FETCH_BYTES), (80, FETCH_BYTES), (200, FETCH_BYTES)),
        *((300, 200), (1, 1), (0, 0), (MAX32, MAX32), (400, 100)),
    )
}


@history({f"{name} in v{each}": (limits, each) for name, limits in LIMITS.items() for each in (4, 12)})
def limit(s: Session, row: tuple[tuple[int, int], int]) -> None:
    """The first batch comes whole, others within the limits, and partitions in the order of the request."""
    (whole, each), version = row
    topic = s.topic(partitions=3)
    for partition in range(2):
        for _ in range(3):
            s.produce(topic, s.batch(b"x" * 40), partition=partition)
    for order in ((0, 1, 2), (2, 1, 0)):
        partitions = [wanted(index, partition_max_bytes=each) for index in order]
        fetch(s, topic, *partitions, version=version, max_bytes=whole)


@history({f"v{version}": version for version in (4, 9, 10, 12)})
def zstd(s: Session, version: int) -> None:
    """Clients older than zstd do not get it."""
    topic = s.topic(partitions=2)
    s.produce(topic, s.batch(b"a" * 50, codec=4), version=7)
    s.produce(topic, s.batch(b"b"), partition=1)
    fetch(s, topic, wanted(0), wanted(1), version=version)


WAITS: Final[dict[str, Callable[[Session, str], Message]]] = {
    "enough": lambda s, topic: fetch(s, topic, wanted(), max_wait=LONG_WAIT_MS, min_bytes=1),
    "no minimum": lambda s, topic: fetch(s, topic, wanted(0, 1), max_wait=LONG_WAIT_MS, min_bytes=0),
    "no partition": lambda s, topic: fetch(s, topic, max_wait=LONG_WAIT_MS, min_bytes=1),
    "no topic": lambda s, topic: s.ask("Fetch", 12, max_wait=LONG_WAIT_MS, min_bytes=1, max_bytes=100),
    "an error": lambda s, topic: fetch(s, topic, wanted(0, 9), max_wait=LONG_WAIT_MS, min_bytes=1),
    "an error of another partition": lambda s, topic: fetch(
        s, topic, wanted(0, 1), wanted(7), max_wait=LONG_WAIT_MS, min_bytes=1
    ),
    "a minimum above the maximum": lambda s, topic: fetch(
        s, topic, wanted(), max_wait=LONG_WAIT_MS, min_bytes=MAX32, max_bytes=10
    ),
    "no wait": lambda s, topic: fetch(s, topic, wanted(0, 1), max_wait=0, min_bytes=100),
    "a negative wait": lambda s, topic: fetch(s, topic, wanted(0, 1), max_wait=-1, min_bytes=100),
    "a negative minimum": lambda s, topic: fetch(s, topic, wanted(0, 1), max_wait=LONG_WAIT_MS, min_bytes=-1),
}


@history({name: each for name, each in WAITS.items() if name != "a minimum above the maximum"})
def waits_not(s: Session, ask: Callable[[Session, str], Message]) -> None:
    """A fetch that has enough, or an error, or must not wait, is answered at once."""
    topic = s.topic()
    s.produce(topic, s.batch(b"a"))
    began = time.monotonic()
    ask(s, topic)
    observe_promptness(s, began)


@history({"at the end": (0, 1, 1), "for more than there is": (1, 0, 100_000)})
def waits(s: Session, row: tuple[int, int, int]) -> None:
    """A fetch that has not enough waits for its time, and gets what there is."""
    _, offset, least = row
    topic = s.topic()
    s.produce(topic, s.batch(b"a"))
    began = time.monotonic()
    fetch(s, topic, wanted(0, offset), max_wait=300, min_bytes=least)
    s.observe("it waited", time.monotonic() - began >= 0.3)


@history()
def a_waiting_fetch_gets_what_comes(s: Session) -> None:
    """A fetch that waits is answered when a record is committed."""
    topic = s.topic()
    topics = [{"topic": topic, "partitions": [wanted()]}]
    began = time.monotonic()
    s.send(
        "Fetch",
        12,
        on="reader",
        node=s.leader(topic),
        max_wait=LONG_WAIT_MS,
        min_bytes=1,
        max_bytes=1000,
        topics=topics,
    )
    s.produce(topic, s.batch(b"a"))
    s.receive(on="reader", node=s.leader(topic))
    observe_promptness(s, began)


@history(
    {f"from {offset} for {least}": (offset, least) for offset in range(4) for least in (1, 150, 100_000)}
)
def segments_end(s: Session, row: tuple[int, int]) -> None:
    """A fetch in a segment that was closed does not wait for what can never come."""
    offset, least = row
    topic = in_segments(s)
    began = time.monotonic()
    wait = LONG_WAIT_MS if offset < 2 or (offset, least) == (2, 1) else 300
    answer = fetch(s, topic, wanted(0, offset), max_wait=wait, min_bytes=least)
    if answer["responses"][0]["partitions"][0]["error_code"] == "NONE" and wait == LONG_WAIT_MS:
        observe_promptness(s, began)


# --- sessions (KIP-227)


class FetchSession:
    """A fetch session over two partitions of a topic."""

    def __init__(self, s: Session, version: int) -> None:
        self.s = s
        self.version = version
        self.topic = s.topic(partitions=3)
        self.id = 0
        self.epoch = 0
        self.offsets = {0: 0, 1: 0}

    def ask(self, *partitions: Mapping[str, Any], forgotten: tuple[int, ...] = (), **fields: Any) -> None:
        """Send a request of the session, and learn its id."""
        name = {"topic": self.topic, "topic_id": self.s.topic_id(self.topic)}
        answer = self.s.ask(
            "Fetch",
            self.version,
            node=self.s.leader(self.topic),
            topics=[{**name, "partitions": partitions}] if partitions else [],
            forgotten_topics_data=[{**name, "partitions": forgotten}] if forgotten else [],
            **{
                "session_id": self.id,
                "session_epoch": self.epoch,
                "max_wait": 0,
                "max_bytes": FETCH_BYTES,
                **fields,
            },
        )
        if answer.get("error_code") == "NONE" and answer["session_id"]:
            self.id = answer["session_id"]

    def full(self) -> None:
        """Begin with all partitions."""
        self.epoch = 0
        self.ask(*(wanted(*each) for each in self.offsets.items()))

    def next(self, *partitions: Mapping[str, Any], **fields: Any) -> None:
        """Go on in the next epoch."""
        self.epoch += 1
        self.ask(*partitions, **fields)

    def produce(self, partition: int) -> None:
        """Write a record."""
        self.s.produce(self.topic, self.s.batch(b"a"), partition=partition)

    def move(self, partition: int) -> None:
        """Go on after the record of a partition."""
        self.offsets[partition] += 1
        self.next(wanted(partition, self.offsets[partition]))

    def delete(self) -> None:
        """Delete the records of partition 0."""
        delete_to(self.s, self.topic, -1)

    def drop(self) -> None:
        """Delete the topic."""
        self.s.ask("DeleteTopics", 5, topic_names=[self.topic], timeout=10_000)


WORDS: Final[Mapping[str, Callable[[FetchSession], None]]] = {
    "full": FetchSession.full,
    "next": FetchSession.next,
    "again": lambda f: f.ask(),
    "skip": lambda f: setattr(f, "epoch", f.epoch + 1),
    "write-0": lambda f: f.produce(0),
    "write-1": lambda f: f.produce(1),
    "write-2": lambda f: f.produce(2),
    "move-0": lambda f: f.move(0),
    "move-1": lambda f: f.move(1),
    "add-2": lambda f: f.next(wanted(2)),
    "add-7": lambda f: f.next(wanted(7)),
    "forget-1": lambda f: f.next(forgotten=(1,)),
    "forget-7": lambda f: f.next(forgotten=(7,)),
    "forget-and-add-1": lambda f: f.next(wanted(1), forgotten=(1,)),
    "far-0": lambda f: f.next(wanted(0, 99)),
    "close": lambda f: f.ask(session_epoch=-1),
    "sessionless": lambda f: f.ask(wanted(), session_id=0, session_epoch=-1),
    "other-id": lambda f: f.ask(session_id=MADE_UP_SESSION, session_epoch=1),
    "no-id": lambda f: f.ask(session_id=0, session_epoch=1),
    "negative-epoch": lambda f: f.ask(session_epoch=-2),
    "last-epoch": lambda f: f.ask(session_epoch=MAX32),
    "full-on-it": lambda f: f.ask(*(wanted(*each) for each in f.offsets.items()), session_epoch=0),
    "delete-0": FetchSession.delete,
    "drop-topic": FetchSession.drop,
}
SESSIONS: Final = {
    "nothing new": "full next next",
    "new records": "full write-0 next next write-1 next",
    "moving on": "write-0 write-1 full move-0 next move-1 next write-0 next",
    "a partition added": "full add-2 write-2 next",
    "a partition forgotten": "full forget-1 write-1 write-0 next",
    "a partition forgotten and added": "full forget-and-add-1 write-1 next",
    "a partition that is not there": "full add-7 next next",
    "forgotten what was not there": "full forget-7 next",
    "the same epoch twice": "full next again next",
    "an epoch left out": "full skip next next",
    "an offset beyond the end": "full far-0 next next",
    "closed": "full close next",
    "no session": "sessionless sessionless",
    "an id that is not there": "full other-id next",
    "an epoch without an id": "no-id",
    "a negative epoch": "full negative-epoch next",
    "the last epoch": "full last-epoch next",
    "begun again": "full full-on-it next full next",
    "records deleted": "write-0 full delete-0 next next",
    "a topic deleted": "full drop-topic",
}


@history(
    {f"{name} in v{each}": (script, each) for name, script in SESSIONS.items() for each in (7, 12, 13, 18)}
)
def session(s: Session, row: tuple[str, int]) -> None:
    """A session remembers partitions, and answers with the changed partitions (KIP-227)."""
    script, version = row
    fetching = FetchSession(s, version)
    for word in script.split():
        WORDS[word](fetching)


# --- epochs


@history({f"v{version}": version for version in (9, 12, 18)})
def leader_epoch(s: Session, version: int) -> None:
    """A reader that knows another epoch of the leader learns it (KIP-320)."""
    topic = s.topic()
    s.produce(topic, s.batch(b"a", b"b"))
    for epoch in (-1, 0, 1, MAX32, -2):
        fetch(s, topic, wanted(current_leader_epoch=epoch), version=version)


@history({f"v{version}": version for version in (12, 18)})
def last_fetched_epoch(s: Session, version: int) -> None:
    """A reader whose log diverged from the leader's learns where (KIP-595)."""
    topic = s.topic()
    s.produce(topic, s.batch(b"a", b"b"))
    for epoch, offset in ((-1, 0), (0, 0), (0, 1), (0, 2), (0, 3), (0, 9), (1, 0), (1, 2), (7, 9), (-2, 0)):
        fetch(s, topic, wanted(0, offset, last_fetched_epoch=epoch), version=version)


@history({f"v{version}": version for version in (2, 3, 4)})
def offset_for_leader_epoch(s: Session, version: int) -> None:
    """The end of an epoch is where the next one begins, or the log's end."""
    topic = s.topic()
    empty = s.topic("empty")
    s.produce(topic, s.batch(b"a", b"b"))
    for name, index in ((topic, 0), (empty, 0), (topic, 7), (s.name("missing"), 0)):
        for current, epoch in ((-1, 0), (-1, 1), (-1, -1), (-1, MAX32), (0, 0), (1, 0), (-1, -2)):
            partitions = [{"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}]
            topics = [{"topic": name, "partitions": partitions}]
            s.ask("OffsetForLeaderEpoch", version, node=s.leader(topic), replica_id=-1, topics=topics)


@history(restarts=True, slow=True)
def epochs_after_a_restart(s: Session) -> None:
    """Each leadership has an epoch, and older readers are refused."""
    topic = s.topic()
    s.produce(topic, s.batch(b"a", b"b"))
    s.kill(1)
    s.restart()

    def is_led() -> bool:
        wanted_offsets = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        found = s.query("ListOffsets", 5, replica_id=-1, topics=wanted_offsets)["topics"][0]["partitions"][0]
        return bool(found["error_code"] == "NONE" and found["offset"] == 2)

    s.wait("the topic is led", is_led)
    s.fetch(topic, 0)
    s.fetch(topic, 2)
    fetch(s, topic, wanted(current_leader_epoch=0))
    for epoch in (0, -1):
        partitions = [{"partition": 0, "leader_epoch": epoch}]
        s.ask("OffsetForLeaderEpoch", 4, replica_id=-1, topics=[{"topic": topic, "partitions": partitions}])


# --- odd requests


@history({f"v{version}": version for version in (12, 13, 18)})
def the_same_partition_twice(s: Session, version: int) -> None:
    """A partition that is named twice is answered."""
    topic = s.topic()
    s.produce(topic, s.batch(b"a"))
    s.produce(topic, s.batch(b"b"))
    fetch(s, topic, wanted(0, 0), wanted(0, 1), version=version)


@history({"of zeros": "00000000-0000-0000-0000-000000000000", "made up": MADE_UP_ID})
def topic_id(s: Session, topic_id: str) -> None:
    """A topic id that is not there is an error of its partitions."""
    topic = s.topic()
    s.produce(topic, s.batch(b"a"))
    good = {"topic_id": s.topic_id(topic), "partitions": [wanted()]}
    bad = {"topic_id": topic_id, "partitions": [wanted()]}
    s.ask(
        "Fetch",
        13,
        node=s.leader(topic),
        max_wait=LONG_WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=[good, bad],
    )


@history({f"v{version}": version for version in (12, 13, 18)})
def a_topic_made_again(s: Session, version: int) -> None:
    """The id of a topic that was deleted does not stand for its successor."""
    topic = s.topic()
    s.produce(topic, s.batch(b"a"))
    s.ask("DeleteTopics", 5, topic_names=[topic], timeout=10_000)
    remade = {"name": topic, "num_partitions": 1, "replication_factor": 1}

    def is_made() -> bool:
        answer = s.query("CreateTopics", 7, topics=[remade], timeout=10_000)["topics"][0]
        return bool(answer["error_code"] == "NONE")

    def is_led() -> bool:
        topics = [{"topic": topic, "partitions": [wanted()]}]
        answer = s.query("Fetch", 12, max_wait=0, max_bytes=1000, topics=topics)["responses"][0][
            "partitions"
        ][0]
        return bool(answer["error_code"] == "NONE" and answer["high_watermark"] == 0)

    s.wait("it is made again", is_made)
    s.wait("it is led", is_led)
    fetch(s, topic, wanted(), version=version)


REPLICAS: Final = (-1, -2, -3)


@history({str(replica): replica for replica in REPLICAS})
def replica_id(s: Session, replica: int) -> None:
    """Consumers have replica id -1; others below 0 are read as theirs."""
    topic = s.topic()
    s.produce(topic, s.batch(b"a"))
    fetch(s, topic, wanted(), replica_id=replica)


@history({f"v{version}": version for version in (11, 12, 18)})
def rack(s: Session, version: int) -> None:
    """A reader's rack that has no replica has no effect (KIP-392)."""
    topic = s.topic()
    s.produce(topic, s.batch(b"a"))
    fetch(s, topic, wanted(), version=version, rack_id="somewhere")
