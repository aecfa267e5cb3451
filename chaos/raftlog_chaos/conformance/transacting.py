"""A transactional producer in a history: what it does is one word each, in either protocol.

Protocol 1 is that of clients before Kafka 4.0: partitions are added before they are written, and epochs stay.
Protocol 2 is KIP-890's: the leader adds a partition at its first batch, and the end of a transaction bumps the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog_chaos.conformance.messages import Message
from raftlog_chaos.conformance.session import Session, Value

PRODUCE: Final = {1: 11, 2: 12}
END_TXN: Final = {1: 4, 2: 5}
TXN_OFFSET_COMMIT: Final = {1: 4, 2: 5}
TIMEOUT_MS: Final = 60_000
ENDED: Final = ("Empty", "CompleteCommit", "CompleteAbort")


class Transacting:
    """A producer with a transactional id, and its topic of two partitions."""

    def __init__(
        self,
        s: Session,
        protocol: int,
        *,
        word: str = "txn",
        topic: str | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self.s = s
        self.protocol = protocol
        self.id = s.name(word)
        self.topic = topic or s.topic(partitions=2)
        self.group = s.name(f"{word}-group")
        self.timeout_ms = timeout_ms
        self.producer = (-1, -1)
        self.before = (-1, -1)
        self.sequence = 0

    def run(self, script: str) -> None:
        """Do what the words of a script say."""
        for word in script.split():
            WORDS[word](self)

    @property
    def node(self) -> int:
        """Return the node that coordinates the transactional id."""
        return self.s.coordinator(self.id, kind=1)

    @property
    def ids(self) -> Mapping[str, Any]:
        """Return the fields that most requests of a producer have."""
        return {
            "transactional_id": self.id,
            "producer_id": self.producer[0],
            "producer_epoch": self.producer[1],
        }

    def become(self, answer: Message) -> None:
        """Take the producer id and epoch of an answer, if it has some, and begin with sequence 0."""
        found = (answer.get("producer_id", -1), answer.get("producer_epoch", -1))
        if answer.get("error_code") == "NONE" and found[0] >= 0:
            self.before, self.producer, self.sequence = self.producer, found, 0

    def init(self, **fields: Any) -> None:
        """Ask for a producer id, again and again while an open transaction is aborted for it, as clients do."""
        given = {"transactional_id": self.id, "transaction_timeout": self.timeout_ms} | fields
        answers: list[Message] = []

        def is_answered() -> bool:
            answers.append(self.s.query("InitProducerId", 4, node=self.node, **given))
            return bool(answers[-1]["error_code"] != "CONCURRENT_TRANSACTIONS")

        self.s.wait("no transaction is in the way of a producer id", is_answered)
        self.s.observe("InitProducerId v4", answers[-1])
        self.become(answers[-1])

    def add(self, version: int = 3, *partitions: int) -> None:
        """Add partitions of the topic to the transaction."""
        topics = [{"name": self.topic, "partitions": partitions or [0]}]
        fields = {f"v3_and_below_{name}": value for name, value in {**self.ids, "topics": topics}.items()}
        self.s.ask("AddPartitionsToTxn", version, node=self.node, **fields)

    def send(
        self,
        *values: Value,
        partition: int = 0,
        attributes: int = TRANSACTIONAL_BIT,
        sequence: int | None = None,
    ) -> None:
        """Send a batch; of one record, unless some are given."""
        at = self.sequence if sequence is None else sequence
        batch = self.s.batch(
            *(values or (b"value",)),
            attributes=attributes,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=at,
        )
        answer = self.s.produce(
            self.topic,
            batch,
            version=PRODUCE[self.protocol],
            partition=partition,
            transactional_id=self.id if attributes & TRANSACTIONAL_BIT else None,
        )
        if answer.get("error_code") == "NONE" and sequence is None:
            self.sequence = at + max(1, len(values))

    def end(self, *, committed: bool, version: int | None = None) -> None:
        """End the transaction, and wait until its markers are written."""
        answer = self.s.ask(
            "EndTxn", version or END_TXN[self.protocol], node=self.node, committed=committed, **self.ids
        )
        self.settle()
        self.become(answer)

    def settle(self) -> None:
        """Wait until no transaction is open."""
        self.s.wait("no transaction is open", lambda: self.state() in ENDED)

    def state(self) -> str:
        """Look at the state of the transactional id."""
        answer = self.s.query("DescribeTransactions", 0, node=self.node, transactional_ids=[self.id])
        return str(answer["transaction_states"][0]["transaction_state"])

    def begin(self) -> None:
        """Add the first partition, which protocol 2 does by itself."""
        if self.protocol == 1:
            self.add()

    def add_offsets(self, version: int = 3) -> None:
        """Add the group's offsets to the transaction."""
        self.s.ask("AddOffsetsToTxn", version, node=self.node, group_id=self.group, **self.ids)

    def commit_offset(self, version: int | None = None, *, offset: int = 5, **fields: Any) -> None:
        """Commit an offset in the transaction."""
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": "note"}]
        self.s.ask(
            "TxnOffsetCommit",
            version or TXN_OFFSET_COMMIT[self.protocol],
            node=self.s.coordinator(self.group),
            **{
                "group_id": self.group,
                **self.ids,
                "topics": [{"name": self.topic, "partitions": partitions}],
                **fields,
            },
        )

    def offsets(self) -> None:
        """Commit an offset; in protocol 1, first add the group's offsets to the transaction."""
        if self.protocol == 1:
            self.add_offsets()
        self.commit_offset()

    def fetch_offset(self, *, require_stable: bool) -> None:
        """Ask for the committed offset."""
        wanted = [{"name": self.topic, "partition_indexes": [0]}]
        self.s.ask(
            "OffsetFetch",
            9,
            node=self.s.coordinator(self.group),
            groups=[{"group_id": self.group, "topics": wanted}],
            require_stable=require_stable,
        )

    def describe(self) -> None:
        """Ask what the coordinator and the leader know."""
        self.s.ask("DescribeTransactions", 0, node=self.node, transactional_ids=[self.id])
        wanted = [{"name": self.topic, "partition_indexes": [0]}]
        self.s.ask("DescribeProducers", 0, node=self.s.leader(self.topic), topics=wanted)

    def read(self) -> None:
        """Read what is committed, and where that ends."""
        self.s.fetch(self.topic, isolation_level=1)
        self.s.list_offsets(self.topic, -1, version=6, isolation=1)

    def as_before(self) -> None:
        """Restore the former state of this producer, as if the last answer were lost or it were another process."""
        if self.before[0] >= 0:
            self.before, self.producer, self.sequence = self.producer, self.before, 0


WORDS: Final[Mapping[str, Callable[[Transacting], None]]] = {
    "init": lambda t: t.init(),
    "bump": lambda t: t.init(producer_id=t.producer[0], producer_epoch=t.producer[1]),
    "bump-ahead": lambda t: t.init(producer_id=t.producer[0], producer_epoch=t.producer[1] + 1),
    "bump-other": lambda t: t.init(producer_id=5_000_000, producer_epoch=t.producer[1]),
    "as-before": Transacting.as_before,
    "begin": Transacting.begin,
    "add": Transacting.add,
    "add-both": lambda t: t.add(3, 0, 1),
    "send": Transacting.send,
    "send-to-1": lambda t: t.send(partition=1, sequence=0),
    "send-again": lambda t: t.send(sequence=max(0, t.sequence - 1)),
    "send-gap": lambda t: t.send(sequence=t.sequence + 1),
    "send-plain": lambda t: t.send(attributes=0),
    "commit": lambda t: t.end(committed=True),
    "abort": lambda t: t.end(committed=False),
    "settle": Transacting.settle,
    "late": lambda t: t.s.wait("the transaction is aborted", lambda: t.state() == "CompleteAbort"),
    "state": lambda t: t.s.observe("the state of the transactional id", t.state()),
    "offsets": Transacting.offsets,
    "add-offsets": Transacting.add_offsets,
    "commit-offset": Transacting.commit_offset,
    "fetch-offset": lambda t: t.fetch_offset(require_stable=False),
    "fetch-stable": lambda t: t.fetch_offset(require_stable=True),
    "describe": Transacting.describe,
    "read": Transacting.read,
}
