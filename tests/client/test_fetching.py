"""raftlog.client.fetching: the Fetcher asks leaders alone, by the leader epoch of the metadata."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from raftlog.base.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from raftlog.client.fetching import Fetcher, Options
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.records.batch import build_batch, new_record
from tests.client.scripted_broker import ScriptedBroker
from tests.kit.waits import PATIENCE_S


class EpochBroker(ScriptedBroker):
    """Leads an empty partition of topic t in an epoch, which its metadata may not have yet."""

    def __init__(self) -> None:
        super().__init__(self._fetch, {"t": 1})
        self.leads_in = self.leader_epoch = 4
        self.epochs: list[int] = []
        """The leader epoch of each Fetch."""

    def _fetch(self, api_key: int, version: int, request: Any) -> Any:
        assert api_key == ApiKey.FETCH
        (asked,) = request.topics[0].partitions
        epoch = asked.current_leader_epoch
        self.epochs.append(epoch)
        refused = FencedLeaderEpoch.code if 0 <= epoch < self.leads_in else UnknownLeaderEpoch.code
        make = response_builders(ApiKey.FETCH, version)
        part = make.PartitionData(
            partition_index=0,
            error_code=0 if epoch in (self.leads_in, -1) else refused,
            high_watermark=7,
            last_stable_offset=7,
        )
        self.leader_epoch = self.leads_in
        topic = make.FetchableTopicResponse(topic="t", partitions=(part,))
        return make.FetchResponse(responses=(topic,))


def test_a_broker_that_leads_in_another_epoch_is_not_believed() -> None:
    """A deposed leader serves consumers as a follower, and its high watermark is not the partition's end."""
    with EpochBroker() as broker, broker.cluster() as cluster:
        fetcher = Fetcher(cluster, Options())
        fetcher.assign({("t", 0): 7})
        (found,) = fetcher.poll(PATIENCE_S)
        assert (found.at_end, found.error) == (True, None)
        for leads_in in (6, 5):
            broker.leads_in = leads_in
            assert fetcher.poll(PATIENCE_S) == []
            fetcher.assign({("t", 0): 7})
            while not (answers := fetcher.poll(PATIENCE_S)):
                pass
            assert [(each.at_end, each.error) for each in answers] == [(True, None)]
        fetcher.close()
    assert broker.epochs == [4, 4, 6, 6, 5]


CHECKED = Options(checks_epochs=True)


class TruncatedBroker(ScriptedBroker):
    """Leads a partition that an unclean election truncated to offset 5, and that has records beyond offset 7 again."""

    def __init__(self) -> None:
        super().__init__(self._fetch, {"t": 1})
        self.epochs: list[int] = []
        """The last fetched epoch of each Fetch."""

    def _fetch(self, api_key: int, version: int, request: Any) -> Any:
        (asked,) = request.topics[0].partitions
        epoch = asked.last_fetched_epoch
        self.epochs.append(epoch)
        make = response_builders(ApiKey.FETCH, version)
        is_diverging = epoch == 3
        batch = build_batch([new_record(None, b"new", timestamp=0)], base_offset=7, leader_epoch=4)
        part = make.PartitionData(
            partition_index=0,
            high_watermark=8,
            last_stable_offset=8,
            **({"diverging_epoch": make.EpochEndOffset(epoch=2, end_offset=5)} if is_diverging else {}),
            records=b"" if is_diverging else batch,
        )
        return make.FetchResponse(responses=(make.FetchableTopicResponse(topic="t", partitions=(part,)),))


def test_a_log_with_other_records_before_the_position_is_noticed_by_the_epoch() -> None:
    """Offsets do not show it: the log is longer than before. The next Fetch has the epoch of the last batch."""
    with (
        TruncatedBroker() as broker,
        broker.cluster() as cluster,
        closing(Fetcher(cluster, CHECKED)) as fetcher,
    ):
        fetcher.assign({("t", 0): 7}, {("t", 0): 3})
        (found,) = fetcher.poll(PATIENCE_S)
        assert (found.diverged_at, found.position, found.has_records) == (5, 7, False)
        fetcher.assign({("t", 0): 7})
        (found,) = fetcher.poll(PATIENCE_S)
        assert (found.diverged_at, found.position, found.epoch) == (None, 8, 4)
        fetcher.poll(PATIENCE_S)
    assert broker.epochs == [3, -1, 4]
