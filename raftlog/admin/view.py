"""The ports that a node hands to its admin API."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from raftlog.admin.facts import AccountFacts, Facts
from raftlog.admin.loop_lag import LoopLag
from raftlog.base.config import NodeConfig
from raftlog.base.env import Offload, ThreadOffload
from raftlog.base.faults import NodeFault
from raftlog.base.lateness import Lateness
from raftlog.base.log import LogState, log_state
from raftlog.base.memory import USUAL_MAX_BYTES, Account, account_of_bodies
from raftlog.base.record_ages import Ages
from raftlog.base.turns import TurnQueue
from raftlog.base.types import TopicPartition
from raftlog.metadata.history import History
from raftlog.metadata.image import Endpoint, MetadataImage

if TYPE_CHECKING:
    from raftlog.admin.cluster_summary import Survey
    from raftlog.admin.samples import Samples
    from raftlog.admin.streams import Streams
    from raftlog.base.dev_cluster import DevCluster
    from raftlog.base.schema_log import SchemaLogPort
    from raftlog.base.transaction_listing import DescribedId, Hanging, TransactionalId
    from raftlog.security.authorizer import Authorizer
    from raftlog.security.bearer_tokens import VerifiedToken


Accept = Callable[[], asyncio.BaseProtocol]
"""Return the protocol of a new connection."""


class FaultSwitch(Protocol):
    """The faults that a node can do to itself; see `raftlog.base.faults`."""

    available: Sequence[str]
    """The names of faults."""
    enabled: bool
    """Whether the node was started with --enable-faults. Otherwise it can only be cut off, for some seconds."""

    def active(self) -> list[NodeFault]:
        """Return the faults in force."""

    def inject(self, fault: NodeFault) -> None:
        """Let one begin."""

    def heal(self, name: str) -> None:
        """Let one end, or "all"."""


class Introduce(Protocol):
    """Raises KafkaError unless broker `broker_id` is at the other end and takes us for a node of its cluster."""

    def __call__(
        self,
        ask: Callable[[bytes], Awaitable[bytes]],
        *,
        broker_id: int,
        certificate: bytes | None = None,
    ) -> Awaitable[None]: ...


class TransactionPort(Protocol):
    """Asks brokers about transactions, as a broker; see `hanging_transactions.py`. Raises KafkaError."""

    async def all(self, *, producer_ids: Collection[int] = ()) -> list[TransactionalId]:
        """Return every transactional id of the cluster, or those with these producer ids."""

    async def open(self, listed: Iterable[TransactionalId]) -> Mapping[str, tuple[int, int]]:
        """Return (start ms, timeout ms) of the listed ids with an open transaction."""

    async def one(self, transactional_id: str) -> DescribedId:
        """Return one transactional id, with the partitions of its transaction."""

    async def hanging(self, topic: str | None = None, *, unused_ms: int) -> list[Hanging]:
        """Return transactions that are open in partitions, unknown to all coordinators, and unused for `unused_ms`."""

    async def end_hanging(self, tp: TopicPartition, start_offset: int) -> Hanging:
        """Abort a hanging transaction."""


class ServerTls(Protocol):
    """The TLS of the admin API's port, which takes new files while it runs; see `raftlog.broker.network.tls`."""

    async def open(self, offload: Offload) -> None:
        """Read the files. Raises ValueError for files that cannot be used."""

    def accepting(self, accept: Accept) -> Accept:
        """Return a protocol factory that puts TLS before the protocols of another factory."""

    def close(self) -> None:
        """Close every connection in its handshake."""

    async def reload_if_changed(self, offload: Offload) -> None:
        """Take new files, if there are."""

    def principal_of(self, connection: ssl.SSLObject) -> str:
        """Return the principal of a connection's certificate. Raise NoPrincipal."""


class TokenVerifier(Protocol):
    """Verifies the tokens of an identity provider; see `raftlog.security.bearer_tokens`."""

    async def verify(self, token: str, *, may_fetch: bool = True) -> tuple[VerifiedToken, int]:
        """Return what a token claims, and for how many milliseconds it holds still. Raises TokenRefused.

        May wait for newer keys with `may_fetch`.
        """


@dataclass(slots=True)
class NodeView:
    """One node as its admin API sees it."""

    config: NodeConfig
    image: Callable[[], MetadataImage]
    """The newest metadata that this node has published."""
    unready_reasons: Callable[[], list[str]]
    """Why this node does not take part, in words; empty when it is ready."""
    wall_clock_ms: Callable[[], float]
    subscribe: Callable[[Callable[[MetadataImage, MetadataImage], None]], None] = lambda listener: None
    """Has a listener called with the old and the new metadata whenever the node publishes some."""
    ages: Ages | None = None
    """The time for deleting data by age."""
    deletes_by_age: Callable[[], bool] = lambda: True
    """Whether the node deletes data by age. A controller without the broker role does so only while it is active."""
    voters: Callable[[], Mapping[int, tuple[str, int]]] = dict
    """The addresses of the present voters of the metadata, by id; none: the config's."""
    submit: Any = None
    """Asks the active controller; see `raftlog.metadata.controller_api.Submit`."""
    introduce: Introduce | None = None
    """Proves to a broker that asks come from a node of the cluster, so that clients cannot take its place there."""
    tls_options: Callable[[Endpoint], Awaitable[dict[str, Any]]] | None = None
    """The options of `create_connection` to a broker's listener: none unless it speaks TLS. Raises ConnectionError."""
    tls: ServerTls | None = None
    """None: the admin API speaks HTTP."""
    offload: Offload = field(default_factory=ThreadOffload)
    token_verifiers: Mapping[str, TokenVerifier] = field(default_factory=dict)
    """By Kafka listener, for listeners of this node with OAUTHBEARER."""
    authorizer: Authorizer | None = None
    """The ACLs in force; None: every user may do everything."""
    knows_rules: Callable[[], bool] = lambda: True
    """Whether the node has the active controller's users and ACLs."""
    facts: Facts | None = None
    """Its numbers."""
    turns: TurnQueue = field(default_factory=TurnQueue)
    """The queue in which the node's long work waits for its turns of the loop."""
    reading_records: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the request that reads a large compressed batch, as it may decompress to very much."""
    lateness: Lateness = field(default_factory=Lateness)
    """How late its event loop is."""
    history: History | None = None
    """The history of the cluster, as far as this node remembers it."""
    log_state: Callable[[], LogState] = log_state
    """Whether its log can be written."""
    lag: LoopLag | None = None
    """Set by the server that serves this view."""
    samples: Samples | None = None
    """The last quarter of an hour in numbers; set by the listener."""
    streams: Streams | None = None
    """The open streams of events; set by the server."""
    record_streams: Streams | None = None
    """The open streams of records; set by the server."""
    record_scans: Streams | None = None
    """The scans of topics in progress, and the downloads of contents; set by the server."""
    answers: Counter[int] = field(default_factory=Counter)
    """How many answers the admin API gave, by status."""
    denials: Counter[str] = field(default_factory=Counter)
    """How often the admin API refused a user for want of a right, by the operation's id."""
    failed_logins: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a login to the admin API failed, by mechanism and reason."""
    bodies: Account = field(default_factory=lambda: account_of_bodies(USUAL_MAX_BYTES))
    """Bodies of requests to the admin API that are arriving."""
    contents: Account = field(init=False)
    """Contents that are downloaded, and batches that scans keep open."""
    faults: FaultSwitch | None = None
    """The faults that a node with --enable-faults can do to itself, or a node of `raftlog dev`; None for others."""
    dev: DevCluster | None = None
    """The process that controls this node's cluster; None unless `raftlog dev` started it."""
    transactions: Callable[[], TransactionPort] | None = None
    """Returns the port for transactions of the whole cluster; None without the broker role."""
    schema_log: SchemaLogPort | None = None
    """This node's replica of the schema registry's store; None without the broker role."""
    registry: Any = None
    """The schema registry; set by the server that serves it."""
    open_registry: Callable[[], Awaitable[Any]] | None = None
    """Returns this node's schema registry, for other ports; None: it has none."""
    started_ms: int = field(init=False)
    """Unix time at which this was made, when the node started."""
    never_in_sync: set[TopicPartition] | None = None
    """Replicas here that have not been in sync since the start, as of the last question; see `native.restarts`."""
    judging_restarts: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the risks of a restart are judged: one at a time, however many ask."""
    judged_restarts: dict[tuple[int, int], tuple[float, Any]] = field(default_factory=dict)
    """The newest by broker and margin, each with the time until which it is returned again."""
    surveyed: Survey | None = None
    """The newest survey; ask `survey_of`."""

    def __post_init__(self) -> None:
        self.started_ms = int(self.wall_clock_ms())
        self.contents = Account("contents", self.bodies.limit // 2)

    async def survey_of(self, image: MetadataImage) -> Survey:
        """Return all partitions in numbers. Pages and metrics ask; only another image is surveyed anew."""
        from raftlog.admin.cluster_summary import survey

        if self.surveyed is None or self.surveyed.image is not image:
            self.surveyed = await survey(self.config, image)
        return self.surveyed

    @property
    def faults_enabled(self) -> bool:
        """Whether the node has faults, and they are `enabled`."""
        return self.faults is not None and self.faults.enabled

    def accounts(self) -> list[AccountFacts]:
        """Return the parts of the budget for memory."""
        of_broker = [] if self.facts is None else self.facts.memory()
        return [*of_broker, AccountFacts.of(self.bodies), AccountFacts.of(self.contents)]
