"""The brokers of a cluster: connections, opened when needed, and requests to any broker, a leader or a coordinator.

A request waits up to the timeout for a broker that accepts it. Once a request is sent, it is repeated only if that
does no harm: it may have been carried out although its response got lost.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from raftlog.base.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    from_code,
)
from raftlog.client.connection import CLIENT_ID, Connection, Dialer
from raftlog.client.errors import UNPROVEN, NotConnected, Refused, Unreachable
from raftlog.client.metadata import Metadata, Node, PartitionKey, read_metadata
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog.security.scram_client import ServerUnproven

Address = tuple[str, int]
Group = dict[str, list[int]]
"""Partitions of one leader, by topic."""
Build = Callable[[Any], Any]
"""Makes a request with the builders of the version that the broker serves."""

RETRY_S: Final = 0.1
CONNECT_S: Final = 2.0
"""How long to try one broker: its partitions and groups may be elsewhere by then. If any broker will do, the timeout
doubles with each round over the servers, since a server may hang, or all may be slow."""
ANSWER_S: Final = 5.0
"""Timeout of a response if another broker can be asked instead, or may lead or coordinate by then. It doubles with each
attempt."""
REFUSED_FOR_S: Final = 1.0
"""Logins may fail this long before they count as refused: a new user is not known to every broker at once."""
GROUP_KEY: Final = 0
"""The key type of a group in FindCoordinator."""
REPEATABLE: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.FIND_COORDINATOR,
        ApiKey.HEARTBEAT,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.JOIN_GROUP,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_OFFSETS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.METADATA,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SYNC_GROUP,
    }
)
"""APIs that may be asked again after a lost response: they only read, or do no harm twice."""
MOVED: Final = (CoordinatorNotAvailable, CoordinatorLoadInProgress, NotCoordinator)


class Cluster:
    """Connections to the brokers of one cluster. Use it in `with`.

    `diagnose` is called once if the first servers close the connections of a client without security settings: it
    returns what the listener requires, or "".
    """

    def __init__(
        self,
        servers: Sequence[Address],
        dialer: Dialer,
        *,
        timeout_s: float,
        client_id: str = CLIENT_ID,
        diagnose: Callable[[], str] | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.deadline = math.inf
        """When the last request must have ended, by the monotonic clock, whatever its timeout."""
        self._servers = list(servers)
        self._dialer = dialer
        self._client_id = client_id
        self._diagnose = diagnose if dialer.is_plaintext else None
        self._requires = ""
        """What the first servers require, as `diagnose` found; "" once a connection succeeds."""
        self._any: Connection | None = None
        self._last_server: Address | None = None
        """Tried last by `_first_server`, which continues with the next: a server may answer some requests only."""
        self._connections: dict[int, Connection] = {}
        self._brokers: dict[int, Node] = {}
        self._coordinators: dict[str, int] = {}
        self._refused_since: float | None = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def knows(self, broker: int) -> bool:
        """Return whether any broker has named this one, so that it has an address."""
        return broker in self._brokers

    def close(self) -> None:
        for each in (*self._connections.values(), *filter(None, (self._any,))):
            each.close()

    # Requests.

    def ask(
        self,
        api_key: int,
        build: Build,
        *,
        broker: int | None = None,
        timeout_s: float | None = None,
        check: bool = True,
    ) -> Any:
        """Return a broker's response; by default any broker's. Raise KafkaError, Unreachable, Refused.

        A KafkaError of the whole response that is retriable is retried within the timeout, as is a connection that
        fails before the request is sent. Without `check`, a response with an error is returned.
        """
        deadline = self._deadline(timeout_s)
        patience_s = ANSWER_S if broker is None and api_key in REPEATABLE else math.inf
        while True:
            connection = self.connection(broker, deadline)
            try:
                connection.set_timeout(min(deadline - time.monotonic(), patience_s))
                version = connection.version_of(api_key)
                exchange = connection.ask if check else connection.exchange
                return exchange(api_key, version, build(request_builders(api_key, version)))
            except KafkaError as error:
                if not error.retriable or _is_late(deadline):
                    raise
            except OSError as error:
                self._ask_why_closed(error)
                if api_key not in REPEATABLE or _is_late(deadline):
                    raise Unreachable(_reason(error), **self._who(broker)) from None
                patience_s *= 2
            time.sleep(RETRY_S)

    def _deadline(self, timeout_s: float | None = None) -> float:
        """Return when a request that begins now must have ended."""
        return min(self.deadline, time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s))

    def _who(self, broker: int | None) -> dict[str, Any]:
        """Return how an error names a broker; {} if any broker was asked."""
        node = None if broker is None else self._brokers.get(broker)
        address = "" if node is None else f"{node.host}:{node.port}"
        return {} if broker is None else {"broker": broker, "address": address}

    def metadata(
        self, topics: Iterable[str] | None = None, *, create: bool = False, broker: int | None = None
    ) -> Metadata:
        """Return the metadata of some topics, by default of all, from a broker, by default from any.

        `create`: create missing topics, as clients do.
        """

        def build(make: Any) -> Any:
            wanted = (
                None if topics is None else tuple(make.MetadataRequestTopic(name=each) for each in topics)
            )
            return make.MetadataRequest(topics=wanted, allow_auto_topic_creation=create)

        found = read_metadata(self.ask(ApiKey.METADATA, build, broker=broker))
        self._brokers |= found.brokers
        return found

    def ask_leaders(
        self,
        partitions: Iterable[PartitionKey],
        api_key: int,
        build: Callable[[Any, Group], Any],
    ) -> dict[PartitionKey, Any]:
        """Send a request to each leader for its partitions, and return the part of the response for each partition.

        Parts with a retriable error are asked for again within the timeout; the last error is returned otherwise.
        """
        deadline = self._deadline()
        waiting, done = set(partitions), {}
        patience_s = ANSWER_S if api_key in REPEATABLE else math.inf
        while waiting:
            for leader, group in self._by_leader(waiting).items():
                try:
                    answer = self.ask(
                        api_key,
                        partial(_build_group, build, group),
                        broker=leader,
                        timeout_s=min(deadline - time.monotonic(), patience_s),
                    )
                except (KafkaError, Unreachable) as error:
                    if isinstance(error, KafkaError):
                        if _is_late(deadline) or not error.retriable:
                            raise
                    elif _is_late(deadline):
                        raise error.with_duty(f"leads {_named(group)}") from None
                    patience_s *= 2
                    continue
                for topic in answer.topics:
                    for part in topic.partitions:
                        key = (topic.name, part.partition_index)
                        done[key] = part
                        if not is_retriable(part.error_code) or _is_late(deadline):
                            waiting.discard(key)
            if waiting:
                if _is_late(deadline):
                    raise Unreachable(f"{len(waiting)} partitions have no reachable leader")
                time.sleep(RETRY_S)
        return done

    def _by_leader(self, partitions: Iterable[PartitionKey]) -> dict[int, Group]:
        wanted = sorted(partitions)
        topics = self.metadata(sorted({topic for topic, _ in wanted})).topics
        found: dict[int, Group] = {}
        for topic, number in wanted:
            there = topics[topic].partitions.get(number)
            if there is not None and there.leader >= 0:
                found.setdefault(there.leader, {}).setdefault(topic, []).append(number)
        return found

    def coordinator(self, group: str) -> int:
        """Return the id of a group's coordinator. Raise KafkaError, Unreachable, Refused."""
        if (known := self._coordinators.get(group)) is not None:
            return known
        found = self.ask(
            ApiKey.FIND_COORDINATOR,
            lambda make: make.FindCoordinatorRequest(key=group, key_type=GROUP_KEY),
        )
        self._brokers[found.node_id] = Node(found.node_id, found.host, found.port, None)
        self._coordinators[group] = found.node_id
        return int(found.node_id)

    def ask_coordinator(
        self,
        group: str,
        api_key: int,
        build: Build,
        *,
        errors: Callable[[Any], Iterable[int]] = lambda _response: (),
        timeout_s: float | None = None,
        check: bool = True,
    ) -> Any:
        """Return the response of a group's coordinator, wherever it is. Raise KafkaError, Unreachable, Refused.

        `errors` returns the codes of the response's parts, of which some may say that the coordinator moved. That and
        a retriable error of the whole response are retried within the timeout. Without `check`, a response with
        another error is returned. A coordinator that is silent for ANSWER_S is looked up again, for requests that
        may be repeated. With `timeout_s` it may be silent for that long.
        """
        deadline = self._deadline()
        patience_s = ANSWER_S if api_key in REPEATABLE else math.inf
        while True:
            try:
                broker = self.coordinator(group)
                limit_s = min(deadline - time.monotonic(), patience_s) if timeout_s is None else timeout_s
                answer = self.ask(api_key, build, broker=broker, timeout_s=limit_s, check=False)
            except Unreachable as error:
                if _is_late(deadline) or not (api_key in REPEATABLE or isinstance(error, NotConnected)):
                    raise error.with_duty(f"coordinates group {group}") from None
                patience_s *= 2
            else:
                whole = getattr(answer, "error_code", 0)
                has_moved = any(isinstance(from_code(code), MOVED) for code in errors(answer) if code)
                if _is_late(deadline) or not (has_moved or is_retriable(whole)):
                    if whole and check:
                        raise from_code(whole, getattr(answer, "error_message", None))
                    return answer
            self._coordinators.pop(group, None)
            time.sleep(RETRY_S)

    # Connections.

    def connection(self, broker: int | None, deadline: float) -> Connection:
        """Return the connection to a broker, or to any. Raise NotConnected, Refused."""
        if broker is None:
            if self._any is None or self._any.is_closed:
                self._any = self._until(deadline, lambda: self._first_server(deadline))
            return self._any
        found = self._connections.get(broker)
        if found is None or found.is_closed:
            found = self._connections[broker] = self.open(broker, deadline)
        return found

    def open(self, broker: int, deadline: float) -> Connection:
        """Return a new connection to a broker, which the caller closes. Raise NotConnected, Refused."""
        deadline = min(deadline, time.monotonic() + CONNECT_S)
        try:
            return self._until(deadline, lambda: self._dial(*self._address_of(broker), deadline))
        except NotConnected as error:
            raise NotConnected(error.reason, **self._who(broker)) from None

    def _address_of(self, broker: int) -> Address:
        if broker not in self._brokers:
            self.metadata([])
        if (node := self._brokers.get(broker)) is None:
            raise ConnectionError(f"broker {broker} is not known")
        return node.host, node.port

    def _until(self, deadline: float, connect: Callable[[], Connection]) -> Connection:
        """Return the connection once it succeeds. Raise NotConnected at the deadline, Refused if a retry is useless."""
        while True:
            try:
                found = connect()
            except OSError as error:
                self._ask_why_closed(error)
                if _is_late(deadline):
                    raise NotConnected(_reason(error)) from None
            except Refused:
                self._refused_since = self._refused_since or time.monotonic()
                if time.monotonic() - self._refused_since > REFUSED_FOR_S or _is_late(deadline):
                    raise
            else:
                self._refused_since = None
                self._requires = ""
                return found
            time.sleep(RETRY_S)

    def _ask_why_closed(self, error: OSError) -> None:
        if isinstance(error, ConnectionRefusedError | TimeoutError):
            return  # nothing listens, or the node hangs: no listener that requires something is silent
        if self._diagnose is not None:
            diagnose, self._diagnose = self._diagnose, None
            self._requires = diagnose()
        if self._requires:
            raise Refused(",".join(f"{host}:{port}" for host, port in self._servers), self._requires)

    def _first_server(self, deadline: float) -> Connection:
        """Return a connection to the first server that accepts it. Raise the last OSError if all refuse it at once."""
        last: OSError = ConnectionError("none is named")
        known = [(each.host, each.port) for each in self._brokers.values()]
        servers = list(dict.fromkeys((*self._servers, *known)))
        begin = servers.index(self._last_server) + 1 if self._last_server in servers else 0
        patience_s = CONNECT_S
        while True:
            is_hanging = False
            for server in (*servers[begin:], *servers[:begin]):
                self._last_server = server
                try:
                    return self._dial(*server, min(deadline, time.monotonic() + patience_s))
                except TimeoutError as error:
                    last, is_hanging = error, True
                except OSError as error:
                    last = error
            if not is_hanging or _is_late(deadline):
                raise last
            patience_s *= 2

    def _dial(self, host: str, port: int, deadline: float) -> Connection:
        address = f"{host}:{port}"
        connected = None
        try:
            connected = self._dialer.connect(host, port, max(0.05, deadline - time.monotonic()))
            connection = Connection(connected, self._client_id)
            connection.version_of(ApiKey.METADATA)
        except ssl.SSLCertVerificationError:
            raise Refused(address, UNPROVEN) from None
        except ServerUnproven as error:
            raise Refused(address, str(error)) from None
        except KafkaError as error:
            raise Refused(address, error.message or type(error).__name__) from None
        return connection


def _build_group(build: Callable[[Any, Group], Any], group: Group, make: Any) -> Any:
    return build(make, group)


def _named(group: Group) -> str:
    """Return the first partition of a leader, and how many more it has, for a message."""
    (topic, numbers), *others = sorted(group.items())
    more = len(numbers) - 1 + sum(len(each) for _, each in others)
    return f"{topic}-{min(numbers)}{f' and {more} more' if more else ''}"


def is_retriable(code: int) -> bool:
    """Return whether a request with this error code may succeed if it is sent again."""
    return from_code(code).retriable


def _is_late(deadline: float) -> bool:
    return time.monotonic() + RETRY_S > deadline


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or "no answer"
