"""raftlog.client.fetching: the Fetcher asks leaders alone, by the leader epoch of the metadata."""

from __future__ import annotations

from typing import Any

from raftlog.base.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from raftlog.client.fetching import Fetcher, Options
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
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
