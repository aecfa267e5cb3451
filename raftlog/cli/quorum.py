"""`raftlog quorum …`: the metadata quorum, as in kafka-metadata-quorum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from raftlog.base.types import METADATA_TOPIC, NO_DIRECTORY, encode_uuid
from raftlog.cli.cluster_command import noun, verb
from raftlog.cli.rows import Form, print_object, print_rows
from raftlog.cli.target import Target
from raftlog.protocol.apis import ApiKey

quorum = noun("Show the metadata quorum and how far its voters are.")


@dataclass(frozen=True, slots=True)
class Replica:
    """A node that has the metadata: a voter or an observer. Times are against the leader's clock, None: not known."""

    node: int
    votes: bool
    end_offset: int
    fetched_ms_ago: int | None
    caught_up_ms_ago: int | None
    directory_id: str | None
    """None: not known."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """The metadata quorum as its leader describes it; `leader` -1: there is none."""

    leader: int
    epoch: int
    high_watermark: int
    replicas: tuple[Replica, ...]

    def lag(self, replica: Replica) -> int:
        """How many entries it is behind the leader."""
        ends = [each.end_offset for each in self.replicas if each.node == self.leader]
        return max(0, (ends[0] if ends else self.high_watermark) - replica.end_offset)


def quorum_of(target: Target) -> Quorum:
    """Ask a cluster for its quorum. Raises Failure."""
    (topic,) = target.ask(ApiKey.DESCRIBE_QUORUM, _build, needs="DESCRIBE").topics
    (found,) = topic.partitions
    voters, observers = found.current_voters, found.observers
    now = max(
        (each.last_fetch_timestamp for each in (*voters, *observers) if each.replica_id == found.leader_id),
        default=-1,
    )

    def ago(timestamp: int) -> int | None:
        return max(0, now - timestamp) if timestamp >= 0 and now >= 0 else None

    replicas = tuple(
        Replica(
            each.replica_id,
            votes,
            each.log_end_offset,
            ago(each.last_fetch_timestamp),
            ago(each.last_caught_up_timestamp),
            _directory_id(getattr(each, "replica_directory_id", None)),
        )
        for votes, group in ((True, voters), (False, observers))
        for each in group
    )
    return Quorum(found.leader_id, found.leader_epoch, found.high_watermark, replicas)


def _build(make: Any) -> Any:
    partition = make.PartitionData(partition_index=0)
    return make.DescribeQuorumRequest(
        topics=(make.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),)
    )


def _directory_id(found: object) -> str | None:
    directory_id = NO_DIRECTORY if found is None else UUID(str(found))
    return None if directory_id == NO_DIRECTORY else encode_uuid(directory_id)


@verb(quorum, "status", prints_rows=True)
def status(target: Target, *, form: Form) -> None:
    """Show the quorum's leader, its epoch, and the lag of the slowest voter."""
    found = quorum_of(target)
    voters = [each for each in found.replicas if each.votes]
    print_object(
        {
            "leader": found.leader,
            "epoch": found.epoch,
            "high_watermark": found.high_watermark,
            "max_voter_lag": max((found.lag(each) for each in voters), default=0),
            "max_voter_lag_ms": max((each.caught_up_ms_ago or 0 for each in voters), default=0),
            "voters": [each.node for each in voters],
            "observers": [each.node for each in found.replicas if not each.votes],
        },
        form,
    )


@verb(quorum, "replication", prints_rows=True)
def replication(target: Target, *, form: Form) -> None:
    """Show how far each voter and observer has the metadata."""
    found = quorum_of(target)
    rows = [
        {
            "node": each.node,
            "status": "leader" if each.node == found.leader else "voter" if each.votes else "observer",
            "end_offset": each.end_offset,
            "lag": found.lag(each),
            "fetched_ms_ago": each.fetched_ms_ago,
            "caught_up_ms_ago": each.caught_up_ms_ago,
            "directory_id": each.directory_id,
        }
        for each in found.replicas
    ]
    print_rows(rows, form)
