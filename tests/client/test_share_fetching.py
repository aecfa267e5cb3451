"""raftlog.client.share_fetching: sessions with leaders, gaps, and acknowledgements that are lost."""

from __future__ import annotations

import math
import time
from typing import Any
from uuid import UUID

import pytest

from raftlog.base.errors import GroupAuthorizationFailed, InvalidRecordState, ShareSessionNotFound
from raftlog.client.share_fetching import ACCEPT, GAP, REJECT, Lost, ShareFetcher, ShareOptions, Taken
from raftlog.client.share_member import ShareMember
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.records.batch import build_batch, new_record
from tests.client.scripted_broker import ScriptedBroker
from tests.kit.waits import PATIENCE_S

TOPIC_ID = UUID(int=7)
FETCH, ACKNOWLEDGE = ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE
Span = tuple[int, int, int]


class Leader(ScriptedBroker):
    """Leads the partition of topic t, and delivers what a test lets it."""

    def __init__(self) -> None:
        super().__init__(self._respond_to, {"t": 1})
        self.topic_id = TOPIC_ID
        self.spans: list[Span] = []
        """First offset, last offset and delivery count of the next delivery."""
        self.records = b""
        self.error_code = 0
        self.ack_error = 0
        self.lock_ms = 30_000
        self.epochs: list[int] = []
        self.added: list[int] = []
        """How many partitions each ShareFetch names."""
        self.acks: list[Span] = []

    def _respond_to(self, api_key: int, version: int, request: Any) -> Any:
        if api_key == ApiKey.FIND_COORDINATOR:
            make = response_builders(api_key, version)
            return make.FindCoordinatorResponse(node_id=1, host=self.host, port=self.port)
        if api_key == ApiKey.SHARE_GROUP_HEARTBEAT:
            return self._beat(version)
        self.epochs.append(request.share_session_epoch)
        acked = [
            each for it in request.topics for part in it.partitions for each in part.acknowledgement_batches
        ]
        self.acks += [(each.first_offset, each.last_offset, *each.acknowledge_types) for each in acked]
        make = response_builders(api_key, version)
        if api_key == ACKNOWLEDGE:
            part = make.PartitionData(partition_index=0, error_code=self.ack_error if acked else 0)
            topic = make.ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=(part,))
            return make.ShareAcknowledgeResponse(error_code=self.error_code, responses=(topic,))
        self.added.append(len(request.topics))
        spans, self.spans = self.spans, []
        part = make.PartitionData(
            partition_index=0,
            acknowledge_error_code=self.ack_error if acked else 0,
            records=self.records if spans else b"",
            acquired_records=tuple(
                make.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in spans
            ),
        )
        topic = make.ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=(part,))
        responses = (topic,) if spans or acked else ()
        return make.ShareFetchResponse(
            error_code=self.error_code, acquisition_lock_timeout=self.lock_ms, responses=responses
        )

    def _beat(self, version: int) -> Any:
        make = response_builders(ApiKey.SHARE_GROUP_HEARTBEAT, version)
        partitions = make.TopicPartitions(topic_id=TOPIC_ID, partitions=(0,))
        assignment = make.Assignment(topic_partitions=(partitions,))
        return make.ShareGroupHeartbeatResponse(
            member_epoch=1, heartbeat_interval=60_000, assignment=assignment
        )


class Worker:
    """A member with the partition, and its fetcher."""

    def __init__(self, cluster: Any) -> None:
        self.member = ShareMember(cluster, "work", ("t",))
        self.fetcher = ShareFetcher(self.member, cluster, ("t",), ShareOptions(wait_ms=0))
        self.member.tick()

    def take(self) -> Taken:
        while not (found := self.fetcher.poll(PATIENCE_S)):
            pass
        (taken,) = found
        return taken


def batch(*values: bytes, base_offset: int = 0) -> bytes:
    return build_batch([new_record(None, each, timestamp=1) for each in values], base_offset=base_offset)


def test_records_come_with_their_counts_and_missing_offsets_are_acknowledged_as_gaps() -> None:
    """Compaction has removed 2, and 5 to 9; batches may have records that another member holds."""
    with Leader() as leader, leader.cluster() as cluster:
        worker = Worker(cluster)
        leader.records = batch(b"0", b"1") + batch(b"3", b"4", base_offset=3)
        leader.spans = [(1, 2, 1), (3, 9, 2)]
        taken = worker.take()
        found = [(each.offset, count, each.value) for _, count, each in taken.records]
        assert found == [(1, 1, b"1"), (3, 2, b"3"), (4, 2, b"4")]
        for offset in (1, 3, 4):
            worker.fetcher.acknowledge(taken, offset, offset, REJECT if offset == 4 else ACCEPT)
        worker.fetcher.poll(PATIENCE_S)
        worker.fetcher.close()
        assert leader.acks == [(1, 1, ACCEPT), (2, 2, GAP), (3, 3, ACCEPT), (4, 4, REJECT), (5, 9, GAP)]
        assert (leader.epochs, leader.added, worker.fetcher.lost) == ([0, 1, -1], [1, 1], [])


def test_acknowledgements_go_with_the_next_request_and_the_last_end_the_session() -> None:
    """Neighbours are one range, and partitions are named once."""
    with Leader() as leader, leader.cluster() as cluster:
        worker = Worker(cluster)
        leader.records, leader.spans = batch(b"0", b"1", b"2"), [(0, 2, 1)]
        taken = worker.take()
        for _, _, each in taken.records:
            worker.fetcher.acknowledge(taken, each.offset, each.offset, ACCEPT)
        assert not worker.fetcher.is_empty
        worker.fetcher.poll(PATIENCE_S)
        assert worker.fetcher.is_empty
        worker.fetcher.poll(PATIENCE_S)
        worker.fetcher.close()
        worker.member.leave()
    assert leader.acks == [(0, 2, ACCEPT)]
    assert (leader.epochs, leader.added) == ([0, 1, 2, -1], [1, 1, 0])
    assert leader.asked[-2:] == [ACKNOWLEDGE, ApiKey.SHARE_GROUP_HEARTBEAT]


@pytest.mark.parametrize("at_end", [False, True])
def test_a_refused_acknowledgement_is_reported(at_end: bool) -> None:
    """Its lock is over: another member may have the record by now."""
    with Leader() as leader, leader.cluster() as cluster:
        worker = Worker(cluster)
        leader.records, leader.spans = batch(b"0"), [(0, 0, 1)]
        taken = worker.take()
        leader.ack_error = InvalidRecordState.code
        worker.fetcher.acknowledge(taken, 0, 0, ACCEPT)
        if not at_end:
            worker.fetcher.poll(PATIENCE_S)
        worker.fetcher.close()
    assert worker.fetcher.lost == [Lost(("t", 0), 0, 0, "InvalidRecordState")]


def test_the_first_lock_ends_before_the_leader_ends_it() -> None:
    """Its time is counted from the request, and later records do not put it off."""
    with Leader() as leader, leader.cluster() as cluster:
        worker = Worker(cluster)
        worker.fetcher.poll(PATIENCE_S)
        assert worker.fetcher.first_lock_ends_at == math.inf
        leader.records, leader.spans = batch(b"0"), [(0, 0, 1)]
        begun_at = time.monotonic()
        worker.take()
        ends_at = worker.fetcher.first_lock_ends_at
        assert begun_at + 30 <= ends_at <= time.monotonic() + 30
        leader.records, leader.spans = batch(b"1", base_offset=1), [(1, 1, 1)]
        worker.take()
        worker.fetcher.close()
        assert worker.fetcher.first_lock_ends_at == ends_at


def test_a_lost_session_is_opened_again_and_what_was_acknowledged_in_it_is_reported() -> None:
    """The request that the leader refuses carried it, and the next session begins with epoch 0 and all partitions."""
    with Leader() as leader, leader.cluster() as cluster:
        worker = Worker(cluster)
        leader.records, leader.spans = batch(b"0"), [(0, 0, 1)]
        taken = worker.take()
        leader.error_code = ShareSessionNotFound.code
        worker.fetcher.acknowledge(taken, 0, 0, ACCEPT)
        worker.fetcher.poll(PATIENCE_S)
        assert worker.fetcher.lost == [Lost(("t", 0), 0, 0, "ShareSessionNotFound")]
        leader.error_code = 0
        leader.spans = [(0, 0, 2)]
        assert [count for _, count, _ in worker.take().records] == [2]
        worker.fetcher.acknowledge(taken, 0, 0, ACCEPT)
        worker.fetcher.close()
    assert (leader.epochs, leader.added) == ([0, 1, 0, -1], [1, 1, 1])


def test_a_group_that_may_not_be_read_is_an_error() -> None:
    """It would be retried for ever otherwise."""
    with Leader() as leader, leader.cluster() as cluster:
        worker = Worker(cluster)
        leader.error_code = GroupAuthorizationFailed.code
        with pytest.raises(GroupAuthorizationFailed):
            worker.fetcher.poll(PATIENCE_S)
