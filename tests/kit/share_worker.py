"""A worker of a queue, with raftlog's own client: it takes records one step at a time, as a test says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from raftlog.client.cluster import Cluster
from raftlog.client.connection import Dialer
from raftlog.client.share_fetching import ShareFetcher, ShareOptions, Taken
from raftlog.client.share_member import ShareMember
from raftlog.testing.cluster import Cluster as Nodes
from tests.kit.waits import PATIENCE_S


class Worker:
    """A member of a share group that reads one topic."""

    def __init__(self, cluster: Cluster, topic: str, group: str) -> None:
        self.cluster = cluster
        self.member = ShareMember(cluster, group, (topic,))
        self._fetcher = ShareFetcher(self.member, cluster, (topic,), ShareOptions())

    def take(self, count: int) -> tuple[Taken, list[tuple[int, int]]]:
        """Take so many records; return them as offsets with delivery counts."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.member.tick()
            for taken in self._fetcher.poll(0.2, most=count):
                return taken, [(each.offset, deliveries) for _, deliveries, each in taken.records]
        raise AssertionError("no record came")

    def say(self, taken: Taken, offset: int, type_: int) -> None:
        """Acknowledge a record, with the next request."""
        self._fetcher.acknowledge(taken, offset, offset, type_)

    def close(self) -> None:
        """Acknowledge, give back the rest, and leave."""
        self._fetcher.close()
        assert self._fetcher.lost == []
        self.member.leave()


@contextmanager
def working(nodes: Nodes, topic: str, group: str, *, client_id: str) -> Iterator[Worker]:
    host, _, port = nodes.bootstrap_servers.partition(",")[0].rpartition(":")
    with Cluster([(host, int(port))], Dialer(), timeout_s=PATIENCE_S, client_id=client_id) as client:
        yield Worker(client, topic, group)
