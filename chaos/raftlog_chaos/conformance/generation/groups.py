"""The words of drawn histories that producers' and groups' coordinators answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raftlog_chaos.conformance.generation.scene import Scene
from raftlog_chaos.conformance.messages import Message
from raftlog_chaos.conformance.session import Session

MADE_UP: Final = {"plain-0": 77_000_000, "plain-1": 77_000_001, "txn-0": 77_000_002, "txn-1": 77_000_003}
"""Producer ids that no broker gave out, for slots that were not filled."""
INTERNAL: Final = "__consumer_offsets"
SESSION_MS: Final = 60_000
ALL_TOPICS: Final = 2
"""The first version of OffsetFetch that asks for all topics of a group."""


class GroupWords(Scene):
    """Words about producer ids, transactions, committed offsets and members."""

    def __init__(self, s: Session, topic: str, partitions: int) -> None:
        super().__init__(s, topic, partitions)
        self.wrote: set[str] = set()
        """The slots of producers that wrote records since their last transaction ended."""
        self.producers: dict[str, tuple[int, int]] = {}
        self.sequences: dict[tuple[str, int], int] = {}
        self.members: dict[str, tuple[str, int]] = {}

    def holder(self, producer: str) -> tuple[int, int]:
        """Return the producer id and epoch of a slot."""
        return self.producers.get(producer, (MADE_UP[producer], 0))

    # --- producer ids

    def init_plain(self, *, producer: str, claim: str, timeout_ms: int, version: int) -> None:
        """Ask for a producer id."""
        answer = self.s.ask(
            "InitProducerId",
            version,
            transactional_id=None,
            transaction_timeout=timeout_ms,
            **self._claim(producer, claim),
        )
        self._become(producer, answer)

    def init_txn(self, *, producer: str, claim: str, timeout_ms: int, version: int) -> None:
        """Ask for the producer id of a transactional id, again and again while an open transaction ends."""
        fields = {
            "transactional_id": self.name(producer),
            "transaction_timeout": timeout_ms,
            **self._claim(producer, claim),
        }
        node = self.s.coordinator(self.name(producer), kind=1)
        answers: list[Message] = []

        def is_answered() -> bool:
            answers.append(self.s.query("InitProducerId", version, node=node, **fields))
            return bool(answers[-1]["error_code"] != "CONCURRENT_TRANSACTIONS")

        self.s.wait("no transaction is in the way", is_answered)
        self.s.observe(f"InitProducerId v{version} of {producer}, which claims {claim}", answers[-1])
        self._settle(producer)
        self._become(producer, answers[-1])

    def _claim(self, producer: str, claim: str) -> Mapping[str, Any]:
        producer_id, epoch = self.producers.get(producer, (-1, -1))
        claims = {
            "none": (-1, -1),
            "own": (producer_id, epoch),
            "old": (producer_id, epoch - 1 if epoch > 0 else epoch),
            "ahead": (producer_id, epoch + 1 if epoch >= 0 else epoch),
            "no epoch": (producer_id, -1),
            "another": (MADE_UP[producer], max(0, epoch)),
        }
        return dict(zip(("producer_id", "producer_epoch"), claims[claim], strict=True))

    def _become(self, producer: str, answer: Message) -> None:
        found = (answer.get("producer_id", -1), answer.get("producer_epoch", -1))
        if answer.get("error_code") != "NONE" or found[0] < 0 or found == self.producers.get(producer):
            return
        self.producers[producer] = found
        for slot in [each for each in self.sequences if each[0] == producer]:
            del self.sequences[slot]

    def _settle(self, producer: str) -> None:
        """Wait until no transaction is about to end."""
        name = self.name(producer)
        node = self.s.coordinator(name, kind=1)

        def is_settled() -> bool:
            answer = self.s.query("DescribeTransactions", 0, node=node, transactional_ids=[name])
            return not answer["transaction_states"][0]["transaction_state"].startswith("Prepare")

        self.s.wait("no transaction is about to end", is_settled)

    # --- transactions

    def add_partitions(self, *, producer: str, epoch: int, partitions: list[int], version: int) -> None:
        """Add partitions of the topic to a transaction."""
        fields = self.ids_of(producer, epoch) | {"topics": [{"name": self.topic, "partitions": partitions}]}
        asked = {f"v3_and_below_{name}": value for name, value in fields.items()}
        self.s.ask("AddPartitionsToTxn", version, node=self._node(producer), **asked)

    def add_offsets(self, *, producer: str, epoch: int, group: str, version: int) -> None:
        """Add a group's offsets to a transaction."""
        self.groups.add(group)
        ids = self.ids_of(producer, epoch)
        self.s.ask("AddOffsetsToTxn", version, node=self._node(producer), group_id=self.name(group), **ids)

    def txn_offset_commit(self, *, producer: str, epoch: int, group: str, version: int, **rest: int) -> None:
        """Commit an offset in a transaction."""
        topics = self.offsets_of(rest["partition"], rest["offset"], "note")
        ids = self.ids_of(producer, epoch)
        self.ask_txn_commit(group, version, generation_id=rest["generation"], topics=topics, **ids)

    def ask_txn_commit(self, group: str, version: int, **fields: Any) -> None:
        """Commit offsets of a group in a transaction, with these fields."""
        self.groups.add(group)
        name = self.name(group)
        self.s.ask("TxnOffsetCommit", version, node=self.s.coordinator(name), group_id=name, **fields)

    def end_txn(self, *, producer: str, epoch: int, committed: bool, version: int) -> None:
        """End a transaction, and wait until its markers are written."""
        ids = self.ids_of(producer, epoch)
        answer = self.s.ask("EndTxn", version, node=self._node(producer), committed=committed, **ids)
        self._settle(producer)
        self._become(producer, answer)
        if answer.get("error_code") == "NONE" and producer not in self.wrote:
            ends = [self.s.end_offset(self.topic, each) for each in range(self.partitions)]
            self.s.observe("the partitions end after a transaction without records", {"ends": ends})
        self.wrote.discard(producer)

    def ids_of(self, producer: str, epoch: int) -> dict[str, Any]:
        """Return the fields of a transactional producer, in its epoch plus `epoch`."""
        producer_id, current = self.holder(producer)
        return {
            "transactional_id": self.name(producer),
            "producer_id": producer_id,
            "producer_epoch": max(0, current + epoch),
        }

    def _node(self, producer: str) -> int:
        return self.s.coordinator(self.name(producer), kind=1)

    def describe_transaction(self, producer: str) -> None:
        """Ask what the coordinator knows; a group's partition follows from its name, which differs each time."""
        name = self.name(producer)
        answer = self.s.query("DescribeTransactions", 0, node=self._node(producer), transactional_ids=[name])
        for topic in answer["transaction_states"][0]["topics"]:
            if topic["topic"] == INTERNAL:
                topic["partitions"] = len(topic["partitions"])
        self.s.observe(f"DescribeTransactions of {producer}", answer)

    # --- committed offsets

    def offset_commit(
        self,
        *,
        group: str,
        partition: int,
        offset: int,
        metadata: str | None,
        generation: int | str,
        version: int,
    ) -> None:
        """Commit an offset, as a member or without a group."""
        self.groups.add(group)
        member, current = self.members.get(group, ("", -1)) if generation == "own" else ("", generation)
        self.s.ask(
            "OffsetCommit",
            version,
            node=self.s.coordinator(self.name(group)),
            group_id=self.name(group),
            generation_id_or_member_epoch=current,
            member_id=member,
            topics=self.offsets_by_id(partition, offset, metadata),
        )

    def offset_fetch(
        self, *, group: str, partitions: list[int] | None, is_stable: bool, version: int
    ) -> None:
        """Ask for committed offsets."""
        self.groups.add(group)
        wanted = {"name": self.topic, "partition_indexes": partitions or [0]}
        by_id = {**wanted, "topic_id": self.s.topic_id(self.topic)}
        is_all = partitions is None and version >= ALL_TOPICS
        self.s.ask(
            "OffsetFetch",
            version,
            node=self.s.coordinator(self.name(group)),
            group_id=self.name(group),
            topics=None if is_all else [wanted],
            groups=[{"group_id": self.name(group), "topics": None if is_all else [by_id]}],
            require_stable=is_stable,
        )

    # --- members

    def join(self, *, group: str, version: int, member: str, protocol: str) -> None:
        """Join a group, again if it has a member, and take the assignment that the member makes."""
        self.groups.add(group)
        name, _ = self._member(group, "own" if group in self.members else member)
        for _ in range(2):
            answer = self.s.ask(
                "JoinGroup",
                version,
                node=self.s.coordinator(self.name(group)),
                group_id=self.name(group),
                session_timeout=SESSION_MS,
                rebalance_timeout=SESSION_MS,
                member_id=name,
                protocol_type="consumer",
                protocols=[{"name": protocol, "metadata": b""}],
            )
            if answer.get("error_code") != "MEMBER_ID_REQUIRED":
                break
            name = answer["member_id"]
        if answer.get("error_code") == "NONE":
            self.members[group] = (answer["member_id"], answer["generation_id"])
            self._sync(group, protocol)

    def _sync(self, group: str, protocol: str) -> None:
        member, generation = self.members[group]
        self.s.ask(
            "SyncGroup",
            5,
            node=self.s.coordinator(self.name(group)),
            group_id=self.name(group),
            generation_id=generation,
            member_id=member,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[{"member_id": member, "assignment": b"all"}],
        )

    def heartbeat(self, *, group: str, version: int, member: str, generation: int | str) -> None:
        """Say that a member lives."""
        name, current = self._member(group, member)
        self.s.ask(
            "Heartbeat",
            version,
            node=self.s.coordinator(self.name(group)),
            group_id=self.name(group),
            generation_id=current if isinstance(generation, str) else generation,
            member_id=name,
        )

    def leave(self, *, group: str, version: int, member: str, generation: int | str) -> None:
        """Leave a group."""
        name, _ = self._member(group, member)
        self.s.ask(
            "LeaveGroup",
            version,
            node=self.s.coordinator(self.name(group)),
            group_id=self.name(group),
            member_id=name,
            members=[{"member_id": name}],
        )
        if member == "own":
            self.members.pop(group, None)

    def _member(self, group: str, member: str) -> tuple[str, int]:
        return self.members.get(group, ("", -1)) if member == "own" else (member, -1)
