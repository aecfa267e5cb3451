"""Producers with ids: sequences, retries, epochs, and what is left of them after deletions, restarts and silence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.messages import Message
from raftlog_chaos.conformance.session import Session

LAST: Final = 2**31 - 1
"""The largest sequence; 0 comes after it."""
LAST_EPOCH: Final = 2**15 - 1
EXPIRING: Final = {
    "producer.id.expiration.ms": "1000",
    "producer.id.expiration.check.interval.ms": "200",
}


class Sending:
    """Producers with ids, a topic of two partitions, and a script of what is sent.

    `3` is a batch of one record with sequence 3, and `3x2` is a batch of two records. `e1:3` is a batch of epoch 1,
    `p1:3` is for partition 1, and `b:3` is from a second producer. Other words are in `WORDS`.
    """

    def __init__(self, s: Session, **configs: str | int) -> None:
        self.s = s
        self.topic = s.topic(partitions=2, configs=configs)
        self.ids: dict[str, int] = {}

    def run(self, script: str) -> None:
        """Do what a script says, ask what the leader knows, and read what is stored."""
        self.play(script)
        self.describe()
        self.s.read(self.topic, self.start())

    def play(self, script: str) -> None:
        """Do what a script says."""
        for word in script.split():
            if word in WORDS:
                WORDS[word](self)
            else:
                self.send(word)

    def start(self) -> int:
        """Look where the first partition begins."""
        topics = [{"name": self.topic, "partitions": [{"partition_index": 0, "timestamp": -2}]}]
        answer = self.s.query("ListOffsets", 5, node=self.s.leader(self.topic), replica_id=-1, topics=topics)
        return int(answer["topics"][0]["partitions"][0]["offset"])

    def batch(self, word: str) -> tuple[int, bytes]:
        """Return the partition and the batch of a word."""
        *marks, what = word.split(":")
        sequence, _, count = what.partition("x")
        numbers = {mark[0]: int(mark[1:] or 0) for mark in marks}
        name = "b" if "b" in numbers else "a"
        if name not in self.ids:
            self.ids[name] = self.s.init_producer()["producer_id"]
        values = [f"{word} {number}".encode() for number in range(int(count or 1))]
        header = {"producer_id": self.ids[name], "producer_epoch": numbers.get("e", 0)}
        return numbers.get("p", 0), self.s.batch(*values, base_sequence=int(sequence), **header)

    def send(self, word: str, **fields: Any) -> Message:
        """Send the batch of a word."""
        partition, batch = self.batch(word)
        return self.s.produce(self.topic, batch, partition=partition, **fields)

    def plain(self) -> None:
        """Send a batch without a producer id, so that the partition has records."""
        self.s.produce(self.topic, self.s.batch(b"plain"))

    def describe(self) -> Message:
        """Ask what the leader knows of its producers."""
        topics = [{"name": self.topic, "partition_indexes": [0]}]
        return self.s.ask("DescribeProducers", 0, node=self.s.leader(self.topic), topics=topics)

    def delete(self) -> None:
        """Delete all records."""
        topics = [{"name": self.topic, "partitions": [{"partition_index": 0, "offset": -1}]}]
        node = self.s.leader(self.topic)
        self.s.ask("DeleteRecords", 2, node=node, topics=topics, timeout=10_000)

    def restart(self) -> None:
        """Kill the leader, and start it again."""
        self.s.kill(self.s.leader(self.topic))
        self.s.restart()

    def forgotten(self) -> None:
        """Wait until the leader has forgotten its producers."""
        topics = [{"name": self.topic, "partition_indexes": [0]}]

        def is_forgotten() -> bool:
            answer = self.s.query("DescribeProducers", 0, node=self.s.leader(self.topic), topics=topics)
            return not answer["topics"][0]["partitions"][0]["active_producers"]

        self.s.wait("the producers are forgotten", is_forgotten)


WORDS: Final[Mapping[str, Callable[[Sending], object]]] = {
    "plain": Sending.plain,
    "delete": Sending.delete,
    "describe": Sending.describe,
    "restart": Sending.restart,
    "forgotten": Sending.forgotten,
}

SCRIPTS: Final = {
    "the last again": "0x2 0x2 2",
    "the last five again": "0 1 2x3 5 6 0 1 2x3 5 6 7",
    "the sixth last again": "0 1 2 3 4 5 0 6",
    "the same one many times": "0 0 0 0 1",
    "the first half again": "0x2 0 2",
    "the second half again": "0x2 1 2",
    "two as one again": "0 1 0x2 2",
    "the last and a new one": "0x2 1x2 2",
    "longer than before": "0 0x2 1",
    "another batch with the same sequence": "0 1 plain 0",
    "a gap at once": "0 2 1 2",
    "a gap after a retry": "0 0 2 1",
    "backwards": "0 1 2 1 0",
    "too far back": "0 1 2 3 4 5 6 7 1 8",
    "up to the largest": f"plain {LAST - 1} {LAST} 0 1",
    "over the largest": f"plain {LAST - 1}x3 1 2",
    "over the largest, again": f"plain {LAST - 1}x3 {LAST - 1}x3 1 {LAST - 1}x3",
    "a gap over the largest": f"plain {LAST} 1 0",
    "five over the largest, again": f"plain {LAST - 1} {LAST} 0 1 2 {LAST - 1} {LAST} 0 1 2",
    "a new epoch": "0 1 e1:0 e1:1",
    "a new epoch with a gap": "0 1 e1:2 e1:0",
    "a new epoch in a row": "0 e1:1 e1:0",
    "an old epoch": "0 e1:0 1 e1:1",
    "an old epoch's batch again": "0 e1:0 0",
    "the same sequence in the next epoch": "0x2 e1:0x2 e1:0x2 e1:2",
    "epochs left out": "0 e7:0 e7:1 e3:0",
    "the largest epoch": f"0 e{LAST_EPOCH}:0 e{LAST_EPOCH}:1 1",
    "first an epoch other than 0": "e5:0 e5:1 e4:2",
    "first a sequence other than 0": "3 4",
    "first a sequence other than 0, after others": "plain 3 4 3 5 6",
    "first a sequence other than 0, after a refusal": "plain 3 2",
    "two producers": "0 b:0 1 b:1 0 b:0 b:2 2",
    "two producers, one with a gap": "0 b:0 b:2 1 b:1",
    "two partitions": "0 p1:0 1 p1:2 p1:1",
    "another partition's epoch": "0 p1:e1:0 1",
    "after a deletion": "0 1 2 delete 3 4",
    "a gap after a deletion": "0 1 2 delete 4 3",
    "again after a deletion": "0 1 2 delete 2 1 3",
    "an old epoch after a deletion": "e1:0 delete e1:1 1",
    "an empty partition with a start": "plain delete 3 4",
}
"""The batches that are sent, by the name of the history."""


@history(SCRIPTS)
def sent(s: Session, script: str) -> None:
    """A batch is stored if it follows the last batch, and answered as before if it is among the last five."""
    Sending(s).run(script)


@history({"again": "0 0 1", "a gap": "0 2 1"})
def with_append_time(s: Session, script: str) -> None:
    """A repeated batch is answered with the time at which it was appended."""
    Sending(s, **{"message.timestamp.type": "LogAppendTime"}).run(script)


@history({f"v{version}": version for version in (3, 5, 8, 9, 11, 13)})
def version(s: Session, version: int) -> None:
    """A wrong sequence or epoch is answered alike in all versions."""
    sending = Sending(s)
    for word in ("e1:0", "e1:0", "e1:2", "0", "e2:1"):
        sending.send(word, version=version)


IN_FLIGHT: Final = {
    "in order": "0 1 2 3 4",
    "six": "0 1 2 3 4 5",
    "each twice": "0 0 1 1",
    "the first is lost": "1 2 0 1 2",
    "after a first one, one is lost": "0 2 3 4",
    "an older epoch among them": "e1:0 0 e1:1",
}


@history(IN_FLIGHT)
def in_flight(s: Session, script: str) -> None:
    """Batches that are sent before the first is answered are judged in their order."""
    sending = Sending(s)
    sending.plain()
    words = script.split()
    for word in words:
        _, batch = sending.batch(word)
        data = [{"name": sending.topic, "partition_data": [{"index": 0, "records": batch}]}]
        s.send("Produce", 9, node=s.leader(sending.topic), acks=-1, timeout=10_000, topic_data=data)
    for _ in words:
        s.receive(node=s.leader(sending.topic))
    sending.describe()
    s.read(sending.topic)


CLAIMS: Final[Mapping[str, Mapping[str, int]]] = {
    "none": {},
    "an id without an epoch": {"producer_id": 5},
    "an epoch without an id": {"producer_epoch": 0},
    "an id that was not given out": {"producer_id": 77_000_000, "producer_epoch": 0},
    "a negative id": {"producer_id": -2, "producer_epoch": 0},
    "a negative epoch": {"producer_id": 5, "producer_epoch": -2},
}


@history(CLAIMS)
def claim(s: Session, claim: Mapping[str, int]) -> None:
    """A producer without a transactional id gets a new id, whatever it claims; what is half is refused."""
    s.init_producer(**claim)


@history(CLAIMS)
def transactional_claim(s: Session, claim: Mapping[str, int]) -> None:
    """A transactional id that is new has no producer that could claim it."""
    s.init_producer(transactional_id=s.name("txn"), **claim)


BUMPS: Final = {
    "own": (0, 0),
    "own again": (0, 0, -1),
    "own, twice": (0, 0, 0),
    "one ahead": (0, 1),
    "the largest": (0, LAST_EPOCH),
    "two behind": (0, 0, 0, -2),
}
"""The epochs that are claimed in turn, relative to the current epoch."""


@history(BUMPS)
def bump(s: Session, claims: tuple[int, ...]) -> None:
    """A producer bumps its epoch by claiming it (KIP-360); its retry gets the same answer, an older epoch is fenced."""
    name = s.name("txn")
    last = s.init_producer(transactional_id=name)
    for behind in claims:
        epoch = min(LAST_EPOCH, last["producer_epoch"] + behind)
        fields = {"producer_id": last["producer_id"], "producer_epoch": epoch}
        answer = s.init_producer(transactional_id=name, **fields)
        last = answer if answer["error_code"] == "NONE" else last


@history(
    {"again": "0 1 forgotten 1", "the next": "0 1 forgotten 2 3", "an old epoch": "e1:0 forgotten 0"},
    settings=EXPIRING,
    slow=True,
)
def forgotten(s: Session, script: str) -> None:
    """A producer that was silent for long is forgotten, and may go on with any sequence and epoch."""
    sending = Sending(s)
    sending.play(script)
    s.read(sending.topic)


@history(
    {"again": "0 1x2 restart 1x2 0 3", "a gap": "0 1 restart 3 2", "an old epoch": "e1:0 restart 0 e1:1"},
    restarts=True,
    slow=True,
)
def after_a_restart(s: Session, script: str) -> None:
    """A leader that was killed knows its producers from its log."""
    fields = {"transactional_id": None, "transaction_timeout": 1000}
    s.wait("ids are given out", lambda: s.query("InitProducerId", 4, **fields)["error_code"] == "NONE")
    Sending(s).run(script)


@history(nodes=3, restarts=True, slow=True)
def a_batch_sent_again_to_the_next_leader(s: Session) -> None:
    """The next leader knows what the killed one stored, and answers a repeated batch as before."""
    topic = s.topic(replicas=3, configs={"min.insync.replicas": 2})
    fields = {"producer_id": s.init_producer()["producer_id"], "producer_epoch": 0}
    for sequence in (0, 1):
        s.produce(topic, s.batch(b"a", base_sequence=sequence, **fields))
    s.kill(s.leader(topic))
    for sequence in (1, 0, 3, 2):
        s.produce(topic, s.batch(b"a", base_sequence=sequence, **fields))
    s.read(topic)
