"""A node's numbers about itself: ports, implemented in `raftlog.facts`, read by `/metrics`.

Ordering law: none of these calls waits for a disk, and each is short except `groups`, which may wait for a majority.
Numbers of partitions are asked partition by partition, so that a reader can let others run in between.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from raftlog.base.histogram import Histogram
from raftlog.base.memory import Account
from raftlog.base.recurring_failures import Failure
from raftlog.base.types import TopicPartition


class PartitionFacts(NamedTuple):
    """One replica on this node."""

    leads: bool
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segments: int
    last_stable_offset: int


class TopicTraffic(Protocol):
    """Records and bytes in and out of one topic's partitions here, since this process began."""

    messages_in: int
    bytes_in: int
    messages_out: int
    bytes_out: int
    replica_bytes_out: int
    produces: int
    failed_produces: int
    fetches: int
    failed_fetches: int
    follower_fetches: int


class ConnectionFacts(Protocol):
    """Counts of the listeners for clients and brokers."""

    connections: int
    open_connections: int
    refused: int
    idle_closed: int
    bytes_received: int
    bytes_sent: int

    @property
    def closed_by_broker(self) -> Mapping[str, int]:
        """Keyed by reason."""

    @property
    def failed_logins(self) -> Mapping[tuple[str, str], int]:
        """Keyed by mechanism and reason."""

    @property
    def requests(self) -> Mapping[int, int]:
        """Keyed by API key."""

    @property
    def latencies(self) -> Mapping[int, Histogram]:
        """Keyed by API key, seconds."""

    @property
    def long_turns(self) -> Mapping[int, int]:
        """Keyed by API key: turns of the event loop that one request held for too long."""

    @property
    def throttled(self) -> Mapping[str, int]:
        """By quota: throttled responses and delayed connections."""

    @property
    def throttle_ms(self) -> Mapping[str, int]:
        """By quota: for how long clients were throttled."""


class AccountFacts(NamedTuple):
    """One part of the budget for memory, in bytes; see `raftlog.base.memory`."""

    name: str
    used_bytes: int
    limit_bytes: int
    most_bytes: int
    """Since the process began."""
    times_full: int

    @classmethod
    def of(cls, account: Account) -> AccountFacts:
        """Return the present state of an account."""
        return cls(account.name, account.used, account.limit, account.most, account.times_full)


class AdmissionFacts(NamedTuple):
    """Connected clients, see `raftlog.broker.network.admission`, and requests that wait for memory."""

    clients: int
    clients_most: int
    brokers: int
    in_hall: int
    readers_waiting: int
    """Connections that wait for memory for the rest of a request."""
    fetch_sessions: int
    fetch_sessions_evicted: int


class DirectoryFacts(NamedTuple):
    """One log directory. `sync_seconds`: how long its rounds of syncs took. `full`: writes were refused for lack of
    room, and there was none for long enough since."""

    path: str
    online: bool
    sync_seconds: Histogram
    full: bool = False
    trouble: str = ""
    """Why it has just refused an operation for lack of descriptors; empty if it has not."""


class RefusedReplica(NamedTuple):
    """A replica that belongs here and could not be created, for example for lack of room; it is retried."""

    name: TopicPartition
    leads: bool
    """Whether the partition is led here, as the metadata says: then it cannot be read or written."""
    reason: str


class CompactionFacts(Protocol):
    """Results of the cleanings of compacted logs, since this process began."""

    cleanings: int
    failures: int
    bytes_before: int
    bytes_after: int
    records_removed: int
    seconds: float


class GroupFacts(NamedTuple):
    """One consumer group that this node coordinates. `offsets`: (topic, partition) → next offset to read."""

    group_id: str
    state: str
    members: int
    offsets: Mapping[tuple[str, int], int]


class SharePartitionFacts(NamedTuple):
    """A partition of a share group that this node leads. Records are counted by their offsets.

    `in_flight`: from the start offset to the end of what was fetched. `oldest_lock_s`: how long the record that is held
    for longest has been held, 0 if none is. `deliveries`: the records that were delivered and are not done, by how
    often.
    """

    group_id: str
    topic: str
    partition: int
    in_flight: int
    locks: int
    oldest_lock_s: float
    deliveries: Mapping[int, int]


class ShareLag(NamedTuple):
    """The committed records that a share group has not done in a partition, by the share coordinator on this node."""

    group_id: str
    topic: str
    lag: int


class DeliveryCountFacts(NamedTuple):
    """Records of a share group since the process began; `archived`: after their last delivery had failed."""

    acquired: int
    redelivered: int
    lock_timeouts: int
    archived: int
    acknowledged: Mapping[str, int]
    """By type, as Kafka names it."""
    letters: int = 0
    """Dead letters that were written."""
    failed_letters: int = 0
    """Attempts to write some that failed."""
    lost_letters: int = 0
    """Records that were archived without."""


class ShareFacts(NamedTuple):
    """Share groups at this node. `groups`: their counts by group id, "" for those that are not counted alone."""

    sessions: int
    session_partitions: int
    write_seconds: Histogram
    groups: Sequence[tuple[str, DeliveryCountFacts]]


class TransactionFacts(NamedTuple):
    """`ids`: how many this node coordinates, by Kafka's names of states. Ended transactions count since the process
    began.
    """

    ids: Mapping[str, int]
    committed: int
    aborted: int
    timed_out: int
    fenced: int
    unfinished_outcomes: int
    """Outcomes with missing markers."""
    oldest_open_ms: int | None
    """When the oldest that is open or being ended began, wall clock."""


class AuditFacts(Protocol):
    """Counts of audited events on Kafka's listeners."""

    @property
    def denials(self) -> Mapping[int, int]:
        """Keyed by API key."""


class ClientMetricsFacts(Protocol):
    """Metrics that clients pushed (KIP-714). Refused and dropped metrics count since the process began."""

    pushes: int
    dropped: int

    @property
    def clients(self) -> int:
        """How many are known."""

    @property
    def series_count(self) -> int:
        """How many series they have together."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Keyed by the error's name."""

    def families(
        self,
    ) -> Sequence[tuple[str, Literal["counter", "gauge"], Iterator[tuple[Iterable[tuple[str, str]], float]]]]:
        """Return name, kind, and (labels, value) of each series, computed during iteration."""


class RaftFacts(NamedTuple):
    """This node in the metadata quorum; `leader_id` -1: none is known. `end_index` -1: it keeps no log, it follows."""

    leader_id: int
    term: int
    commit_index: int
    end_index: int
    leads: bool
    votes: bool


class Facts(Protocol):
    """One node in numbers. Facts of the broker role are empty on a node without it."""

    def partition_names(self) -> list[TopicPartition]:
        """Return the replicas held here."""

    def partition(self, name: TopicPartition) -> PartitionFacts | None:
        """Return a replica, None if it was removed meanwhile."""

    def traffic(self) -> Mapping[str, TopicTraffic]:
        """Return topics' traffic by name."""

    def connections(self) -> ConnectionFacts | None:
        """Return what listeners count; None without the broker role."""

    def memory(self) -> list[AccountFacts]:
        """Return the parts of the budget for memory."""

    def group_bytes(self) -> int:
        """Return about how many bytes the groups take that are coordinated here (raftlog.group.max.bytes)."""

    def admission(self) -> AdmissionFacts | None:
        """Return the connected clients; None without the broker role."""

    def directories(self) -> list[DirectoryFacts]:
        """Return the log directories."""

    def refused_replicas(self) -> list[RefusedReplica]:
        """Return the replicas that belong here and could not be made."""

    def failed_replicas(self) -> Mapping[TopicPartition, str]:
        """Return the replicas here that stopped following rather than truncate committed records, with the reasons."""

    def compaction(self) -> CompactionFacts | None:
        """Return the results of cleanings; None without the broker role."""

    def failures(self) -> list[Failure]:
        """Return the failures of recurring work for single logs, groups and transactional ids."""

    def transactions(self) -> TransactionFacts | None:
        """Return the transactions coordinated here; None without the broker role."""

    def shares(self) -> ShareFacts | None:
        """Return the share groups with members or partitions here; None without the broker role."""

    def share_keys(self) -> list[Hashable]:
        """Return the keys of the share partitions that this node leads and has in memory."""

    def share_partition(self, key: Hashable) -> SharePartitionFacts | None:
        """Return a share partition that this node leads, None if it was dropped meanwhile."""

    def share_parts(self, key: Hashable) -> int:
        """Return how many parts of a request `share_partition` is: more for many ranges in flight."""

    def share_state_keys(self) -> list[Hashable]:
        """Return the keys of the share partitions that this node coordinates."""

    def share_lag(self, key: Hashable) -> ShareLag | None:
        """Return the lag of a share partition; None if it has not begun, or has no replica here."""

    def audit(self) -> AuditFacts | None:
        """Return the denials and failed logins; None without the broker role."""

    def client_metrics(self) -> ClientMetricsFacts | None:
        """Return what clients pushed here; None without the broker role."""

    def raft(self) -> RaftFacts | None:
        """Return the quorum as this node sees it; None while it is not started."""

    async def groups(self) -> list[GroupFacts]:
        """Return the groups coordinated here. Raise KafkaError if they are unavailable now."""
