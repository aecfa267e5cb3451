"""Plays a drawn plan in a session: each word is a method, and slots are filled by what the broker answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from raftlog.records.batch import Record, new_record
from raftlog.records.header import TRANSACTIONAL_BIT
from raftlog_chaos.conformance import batches
from raftlog_chaos.conformance.generation.group_transactions import GroupTransactions
from raftlog_chaos.conformance.generation.plan import Plan, Step
from raftlog_chaos.conformance.generation.scene import APPLIED_S
from raftlog_chaos.conformance.generation.sessions import BY_ID, SessionWords, shown_partition
from raftlog_chaos.conformance.messages import Message
from raftlog_chaos.conformance.session import FETCH_BYTES, TIMEOUT_MS, Session

MAX32: Final = 2**31 - 1


ALL: Final = {"partition_bytes": FETCH_BYTES, "max_bytes": FETCH_BYTES}


class Play(GroupTransactions, SessionWords):
    """A plan in a session."""

    def __init__(self, s: Session, plan: Plan) -> None:
        super().__init__(s, s.topic(partitions=plan.partitions, configs=plan.configs), plan.partitions)
        self.count = 0
        self.sequences: dict[tuple[str, int], int] = {}
        self.sent: dict[tuple[str, int], list[bytes]] = {}
        self.written: set[int] = set()
        self.made_up: set[tuple[str, int]] = set()
        """Producers and the partitions to which they sent a batch of an epoch that was never assigned."""

    def run(self, steps: tuple[Step, ...]) -> None:
        """Play all steps, and then read everything."""
        for step in steps:
            word: Callable[..., None] = getattr(self, step.word)
            word(**step.fields)
        self.end()

    # --- records

    def produce(
        self, *, producer: str | None, partition: int, sequence: str, back: int, epoch: int, **rest: Any
    ) -> None:
        """Send a batch, the next of its producer or another."""
        slot = (producer or "", partition)
        records = self._records(rest["sizes"], rest["after_ms"], rest["step_ms"], has_keys=rest["keys"])
        header = self._header(producer, partition, sequence, epoch)
        if header.get("producer_id", -1) >= 0 and producer and producer.startswith("txn"):
            header["attributes"] = rest["codec"] | (TRANSACTIONAL_BIT if rest["is_transactional"] else 0)
        batch = self.s.batch(*records, codec=rest["codec"], **header)
        sent = self.sent.setdefault(slot, [])
        if sequence == "again" and producer and len(sent) >= back:
            batch = sent[-back]
        is_transactional = header.get("attributes", 0) & TRANSACTIONAL_BIT
        transactional_id = self.name(producer) if producer and is_transactional else None
        answer = self.s.produce(
            self.topic,
            batch,
            version=rest["version"],
            partition=partition,
            acks=rest["acks"],
            transactional_id=transactional_id,
        )
        if header.get("base_sequence", 0) > 0 and partition not in self.written:
            self.s.remark("with the first batch of a partition")
        if producer and producer.startswith("txn") and transactional_id is None:
            self.s.remark("outside a transaction")
        if slot in self.made_up:
            self.s.remark("after a made-up epoch")
        if epoch > 0:
            self.made_up.add(slot)
        if answer.get("error_code") == "NONE":
            self._stored(slot, batch, is_new=batch not in sent)
            if rest["acks"] == 1:
                self._await_commit(partition, answer["base_offset"])

    def _records(self, sizes: list[int], after_ms: int, step_ms: int, *, has_keys: bool) -> list[Record]:
        found = []
        for number, size in enumerate(sizes):
            self.count += 1
            value = str(self.count).ljust(size, ".").encode()
            key = f"key-{self.count % 3}".encode() if has_keys else None
            found.append(new_record(key, value, timestamp=self.s.at(after_ms + number * step_ms)))
        return found

    def _header(self, producer: str | None, partition: int, sequence: str, epoch: int) -> dict[str, int]:
        if producer is None:
            return {}
        producer_id, current = self.holder(producer)
        right = self.sequences.get((producer, partition), 0)
        gap = 3 if partition in self.written else 0
        odd = {"gap": right + gap, "zero": 0, "behind": max(0, right - 1)}
        return {
            "producer_id": producer_id,
            "producer_epoch": max(0, current + epoch),
            "base_sequence": odd.get(sequence, right),
        }

    def _stored(self, slot: tuple[str, int], batch: bytes, *, is_new: bool) -> None:
        self.written.add(slot[1])
        header = batches.header_of(batch)
        self.wrote.add(slot[0])
        if slot[0] and is_new:
            self.sent[slot].append(batch)
            self.sequences[slot] = (header["base_sequence"] + header["record_count"]) & MAX32

    def _await_commit(self, partition: int, offset: int) -> None:
        """An answer to acks=1 comes before the batch can be fetched."""
        self.s.wait("it is committed", lambda: self.s.end_offset(self.topic, partition) > offset)

    def fetch(
        self, *, partition: int, offset: int | str, version: int, isolation: int, epoch: int, **rest: int
    ) -> None:
        """Fetch what limits allow. A batch that is cut off at the end is no client's business."""
        at = self.offset_at(offset, partition)
        wanted = {
            "partition": partition,
            "fetch_offset": at,
            "partition_max_bytes": rest["partition_bytes"],
            "current_leader_epoch": epoch,
        }
        is_former = bool(rest.get("is_former") and self.former_id and version >= BY_ID)
        topic_id = self.topic_id(is_former=is_former)
        topics = [{"topic": self.topic, "topic_id": topic_id, "partitions": [wanted]}]
        answer = self.s.query(
            "Fetch",
            version,
            node=self.s.leader(self.topic, partition),
            max_wait=0,
            max_bytes=rest["max_bytes"],
            isolation_level=isolation,
            topics=topics,
        )
        found = [shown_partition(each) for topic in answer["responses"] for each in topic["partitions"]]
        limits_shown = f"{rest['partition_bytes']} of {rest['max_bytes']} bytes"
        asked = f"partition {partition} at {at}, {limits_shown}, isolation {isolation}, epoch {epoch}"
        whose = ", of the former topic" if is_former else ""
        self.s.observe(f"Fetch v{version} of {asked}{whose}", found or answer)

    def list_offsets(
        self, *, partition: int, timestamp: int | str, after_ms: int, version: int, isolation: int
    ) -> None:
        """Ask for the offset of a time."""
        time_ms = self.s.at(after_ms) if isinstance(timestamp, str) else timestamp
        self.s.list_offsets(self.topic, time_ms, version=version, partition=partition, isolation=isolation)

    def delete_records(self, *, partition: int, offset: int | str, version: int) -> None:
        """Move the start of a partition."""
        partitions = [{"partition_index": partition, "offset": self.offset_at(offset, partition)}]
        topics = [{"name": self.topic, "partitions": partitions}]
        self.s.ask(
            "DeleteRecords",
            version,
            node=self.s.leader(self.topic, partition),
            topics=topics,
            timeout=TIMEOUT_MS,
        )

    # --- the topic

    def alter_config(self, *, name: str, value: str, operation: int, validate_only: bool) -> None:
        """Set, delete, append to or subtract from a setting of the topic."""
        config = {"name": name, "config_operation": operation, "value": value}
        resource = {"resource_type": 2, "resource_name": self.topic, "configs": [config]}
        answer = self.s.ask("IncrementalAlterConfigs", 1, resources=[resource], validate_only=validate_only)
        if answer["responses"][0]["error_code"] == "NONE" and not validate_only and self.exists:
            self.s.wait("the setting is in force", lambda: self._has_config(name, value, operation))
            time.sleep(APPLIED_S)

    def _has_config(self, name: str, value: str, operation: int) -> bool:
        wanted = [{"resource_type": 2, "resource_name": self.topic, "configuration_keys": [name]}]
        found = self.s.query("DescribeConfigs", 4, resources=wanted)["results"][0]["configs"]
        if operation == 1:
            return not found or found[0]["config_source"] != 1
        return bool(found) and found[0]["value"] == value

    def create_partitions(self, *, count: int, validate_only: bool, version: int) -> None:
        """Give the topic more partitions."""
        wanted = {"name": self.topic, "count": count, "assignments": None}
        answer = self.s.ask(
            "CreatePartitions", version, topics=[wanted], timeout=TIMEOUT_MS, validate_only=validate_only
        )
        if answer["results"][0]["error_code"] == "NONE" and not validate_only:
            self.partitions = count
            self.s.grown(self.topic, count)
            self.await_coordinator()

    def delete_topic(self, *, version: int) -> None:
        """Delete the topic, and wait until no broker knows it."""
        answer = self.s.ask(
            "DeleteTopics",
            version,
            topic_names=[self.topic],
            topics=[{"name": self.topic}],
            timeout=TIMEOUT_MS,
        )
        if answer["responses"][0]["error_code"] == "NONE":
            self.exists = False
            self.s.wait("the topic is gone", lambda: self._metadata()["error_code"] != "NONE")
            time.sleep(APPLIED_S)
            self.await_coordinator()

    def create_topic(self, *, partitions: int, version: int) -> None:
        """Make the topic again, or try to while it is there."""
        wanted = {"name": self.topic, "num_partitions": partitions, "replication_factor": 1}
        if self.exists or partitions <= 0:
            self.s.ask("CreateTopics", version, topics=[wanted], timeout=TIMEOUT_MS, validate_only=True)
            return
        self.former_id = self.s.topic_id(self.topic)
        self.s.topic(partitions=partitions)
        self.exists, self.partitions = True, partitions
        self.written.clear()
        wanted_id = self.s.topic_id(self.topic)
        self.s.wait("the topic is new", lambda: self._metadata()["topic_id"] == wanted_id)
        time.sleep(APPLIED_S)
        self.await_coordinator()

    def _metadata(self) -> Message:
        return dict(self.s.query("Metadata", 12, topics=[{"name": self.topic}])["topics"][0])

    # --- its end

    def describe(self) -> None:
        """Ask what leaders and coordinators know."""
        topics = [{"name": self.topic, "partition_indexes": [*range(self.partitions)]}]
        self.s.ask("DescribeProducers", 0, node=self.s.leader(self.topic), topics=topics)
        for slot in self.producers:
            if slot.startswith("txn"):
                self.describe_transaction(slot)

    def end(self) -> None:
        """Read everything, and ask what is committed."""
        if self.exists:
            for partition in range(self.partitions):
                self.s.read(self.topic, self.offset_at("start", partition), partition=partition)
                self.fetch(partition=partition, offset="start", version=12, isolation=1, epoch=-1, **ALL)
            self.describe()
        for group in sorted(self.groups):
            self.offset_fetch(group=group, partitions=None, is_stable=False, version=7)
