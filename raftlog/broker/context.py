"""The surroundings of request handlers: one broker with its coordinators, and one request. It has no behaviour.

Everything that a handler uses is below it: coordinators and links see a `LocalBroker`, and no handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from raftlog.base.memory import Account
from raftlog.broker.audit import Audit
from raftlog.broker.client_telemetry import ClientTelemetry
from raftlog.broker.local_broker import LocalBroker
from raftlog.security.acls import ADMIN_API, ADMIN_CLIENT, ANONYMOUS
from raftlog.security.tokens import TokenKey

if TYPE_CHECKING:
    from raftlog.broker.coordination.group_coordinators import GroupCoordinators
    from raftlog.broker.coordination.led_share_partitions import LedSharePartitions
    from raftlog.broker.coordination.schema_check import SchemaCheck
    from raftlog.broker.coordination.schema_log import SchemaLog
    from raftlog.broker.coordination.share_state_coordinators import ShareStateCoordinators
    from raftlog.broker.coordination.transaction_coordinators import TransactionCoordinators
    from raftlog.broker.coordination.transaction_verification import TransactionVerifier
    from raftlog.broker.metadata_view import MetadataViews
    from raftlog.broker.network.client_quotas import ClientLimits
    from raftlog.broker.network.login import Login


MOST_CLIENT_ID_CHARS: Final = 100
"""The maximum length of a client id in a log line."""

MOST_ASKED_BY_CHARS: Final = 200
"""The maximum length of a principal in the history: names in certificates may be long."""


@dataclass(slots=True)
class BrokerContext(LocalBroker):
    """One broker, as its handlers see it."""

    groups: GroupCoordinators = field(init=False)
    """Set by the node, as the next two fields. A node that is not a broker has none, and serves no API that uses
    them."""
    transactions: TransactionCoordinators = field(init=False)
    verifier: TransactionVerifier = field(init=False)
    token_key: TokenKey = field(init=False)
    audit: Audit = field(default_factory=Audit)
    """Records logins, denials and changes."""
    telemetry: ClientTelemetry = field(default_factory=ClientTelemetry)
    """The metrics that clients push."""
    metadata_views: MetadataViews | None = None
    """The responses that handlers.metadata keeps encoded between requests."""

    made_share_states: ShareStateCoordinators | None = None
    """What `share_states` made; None until this broker coordinates a state, or a state is looked up."""

    @property
    def share_states(self) -> ShareStateCoordinators:
        """The share coordinators of this broker. Few clusters have share groups."""
        if self.made_share_states is None:
            from raftlog.broker.coordination.share_state_coordinators import ShareStateCoordinators

            self.made_share_states = ShareStateCoordinators(self)
        return self.made_share_states

    made_share_partitions: LedSharePartitions | None = None
    """What `share_partitions` made; None until a member of a share group sends a request."""

    @property
    def share_partitions(self) -> LedSharePartitions:
        """The share partitions that this broker leads, and the sessions of their members."""
        if self.made_share_partitions is None:
            from raftlog.broker.coordination.led_share_partitions import LedSharePartitions
            from raftlog.broker.coordination.share_state_client import ShareStateClient

            states = ShareStateClient(self, self.share_states.write)
            self.made_share_partitions = LedSharePartitions(self, states)
        return self.made_share_partitions

    made_schema_check: SchemaCheck | None = None
    """What `schema_check` made; None until a topic with schema validation is written to."""

    @property
    def schema_check(self) -> SchemaCheck:
        """The check of produced records by the registry's schemas."""
        if self.made_schema_check is None:
            from raftlog.broker.coordination.schema_check import SchemaCheck

            self.made_schema_check = SchemaCheck(self)
        return self.made_schema_check

    async def _check_by_schemas(self, *batch: Any, **options: Any) -> None:
        await self.schema_check.check(*batch, **options)

    def schema_log(self) -> SchemaLog:
        """Return this broker's replica of the schema registry's store, for its reader."""
        from raftlog.broker.coordination.schema_log import SchemaLog

        return SchemaLog(self)

    def __post_init__(self) -> None:
        self.check_by_schemas = self._check_by_schemas
        self.token_key = TokenKey(self.config.delegation_token_secret_key)


class ClientConnection(Protocol):
    """The connection of a request, as handlers see it."""

    peer_port: int
    login: Login | None
    """None if clients of this listener need no login."""
    software: tuple[str, str]
    """Name and version of the client library, as the client sent them (KIP-511)."""

    @property
    def is_open(self) -> bool: ...

    @property
    def limits(self) -> ClientLimits | None:
        """The quotas of the request's sender."""

    @property
    def response_memory(self) -> Account:
        """The memory for responses of clients."""

    def count_fetch(self, size: int) -> int:
        """Count the records of a response by the sender's quota. A throttle time, in ms, means that it gets none."""

    def on_login(self, principal: str) -> int: ...

    def finish(self, *, answers_all: bool = False) -> None: ...

    def report_failed_login(self) -> None: ...


@dataclass(slots=True, frozen=True)
class RequestContext:
    """The sender of a request, and its header.

    `peer_broker_id` is set only on connections that proved the cluster secret.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    listener: str
    peer_host: str
    peer_broker_id: int | None = None
    connection: ClientConnection | None = None
    """The connection of the request. None for a request of this broker to itself, which cancels it after a timeout."""
    to_controller: bool = False
    """Whether it came to the controller's listener (KIP-919)."""
    principal: str = ANONYMOUS
    """The sender's principal, as `User:name`."""

    @property
    def has_all_rights(self) -> bool:
        """Whether a broker sent it, or this broker itself."""
        return self.peer_broker_id is not None or self.connection is None

    @property
    def sender(self) -> dict[str, object]:
        """The sender and its address, for a line of the audit log."""
        return {
            "principal": self.principal,
            "client_id": (self.client_id or "")[:MOST_CLIENT_ID_CHARS],
            "address": self.peer_host,
            "listener": self.listener,
        }

    @property
    def asked_by(self) -> str:
        """The principal for the history of the metadata; "" for brokers and for anonymous clients."""
        if self.has_all_rights or self.principal == ANONYMOUS:
            return ""
        if self.principal == ADMIN_API:
            return (self.client_id or "").removeprefix(ADMIN_CLIENT).strip()[:MOST_ASKED_BY_CHARS]
        return self.principal[:MOST_ASKED_BY_CHARS]

    @property
    def is_awaited(self) -> bool:
        """Whether the sender may still receive the response. After a timeout it may have retried elsewhere."""
        return self.connection is None or self.connection.is_open


Handler = Callable[[BrokerContext, RequestContext, Any], Any | asyncio.Future[Any] | Awaitable[Any]]
"""(broker, request, decoded kio message) → kio response, or an awaitable of it, or None for no response at all."""
