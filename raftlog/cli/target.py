"""Connects a command to a cluster, and sends its requests: every failure becomes one line and an exit code."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.errors import (
    BrokerIdNotRegistered,
    ClusterAuthorizationFailed,
    DelegationTokenAuthorizationFailed,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    KafkaError,
    NoReassignmentInProgress,
    SaslAuthenticationFailed,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
    from_code,
)
from raftlog.cli import exits
from raftlog.cli.client_settings import PROTOCOLS, addresses_of, checked_options, dialer_of, read_file
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import SEE_HEALTH, SEVERAL
from raftlog.cli.listener_probe import NOT_KAFKA, why_closed
from raftlog.cli.printable import printable
from raftlog.cli.refusals import not_authorized
from raftlog.client.errors import NotConnected, Refused, Unreachable
from raftlog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from raftlog.client.cluster import Cluster
    from raftlog.client.metadata import Metadata, TopicMetadata

LOCAL: Final = "localhost:9092"
TIMEOUT_S: Final = 10.0
PROBE_S: Final = 2.0
"""How long a broker may take to say that it is there, once it has not answered a request."""

_CODES: Final[dict[type[KafkaError], int]] = {
    BrokerIdNotRegistered: exits.NOT_FOUND,
    UnknownTopicOrPartition: exits.NOT_FOUND,
    GroupIdNotFound: exits.NOT_FOUND,
    NoReassignmentInProgress: exits.NOT_FOUND,
    TopicAlreadyExists: exits.EXISTS,
    ClusterAuthorizationFailed: exits.DENIED,
    DelegationTokenAuthorizationFailed: exits.DENIED,
    GroupAuthorizationFailed: exits.DENIED,
    TopicAuthorizationFailed: exits.DENIED,
    TransactionalIdAuthorizationFailed: exits.DENIED,
    SaslAuthenticationFailed: exits.DENIED,
}
_WORDS: Final[dict[type[KafkaError], str]] = {
    UnknownTopicOrPartition: "there is no such topic or partition",
    GroupIdNotFound: "there is no such group",
    NoReassignmentInProgress: "no move is under way",
}
"""Errors that some brokers send without a message."""


@dataclass(frozen=True)
class Target:
    """A cluster and how to reach it: what -b, -X, -F and --timeout said. `bootstrap` "" is the file's, or localhost.

    `known`: the settings of -X that the command knows besides those of all commands.
    """

    bootstrap: str = ""
    options: tuple[str, ...] = ()
    file: Path | None = None
    timeout_s: float = TIMEOUT_S
    known: Collection[str] = ()

    @cached_property
    def settings(self) -> dict[str, str]:
        """The settings of the file and of -X, which go before. Raise Failure."""
        return {**self._from_file, **self._from_options}

    @cached_property
    def _from_options(self) -> dict[str, str]:
        return checked_options(self.options, self.known)

    @cached_property
    def _from_file(self) -> dict[str, str]:
        return {} if self.file is None else read_file(self.file)

    @cached_property
    def servers(self) -> str:
        """The bootstrap servers. Raise Failure for an invalid address."""
        name = "bootstrap.servers"
        if name in self._from_options:
            return _checked(self._from_options[name], f"-X {name}")
        if self.bootstrap:
            return _checked(self.bootstrap, "-b")
        return _checked(self._from_file.get(name, LOCAL), str(self.file))

    @property
    def is_default(self) -> bool:
        """Whether no address was given, so that a broker on this machine is meant."""
        return not self.bootstrap and "bootstrap.servers" not in self.settings

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster, which is not asked yet. Raise Failure for settings that cannot be used."""
        from raftlog.client.cluster import Cluster
        from raftlog.client.connection import CLIENT_ID

        return Cluster(
            addresses_of(self.servers),
            dialer_of(self.settings),
            timeout_s=self.timeout_s,
            client_id=self.settings.get("client.id", CLIENT_ID),
            diagnose=lambda: why_closed(self.servers),
        )

    def close(self) -> None:
        """Close the connections, if any."""
        if "cluster" in vars(self):
            self.cluster.close()

    @contextmanager
    def failures(self, about: str = "", *, needs: str = "") -> Iterator[None]:
        """Turn errors of the client into Failures; `about` begins the line.

        `needs` is the required operation, for the message to an unauthorized user.
        """
        try:
            yield
        except (KafkaError, Refused, Unreachable) as error:
            raise self.failure(error, about, needs=needs) from None

    def failure(self, error: Exception, about: str = "", *, needs: str = "") -> Failure:
        """Return the end of a command over an error of the client."""
        if isinstance(error, KafkaError):
            return refusal(error, about, needs=needs)
        if isinstance(error, Refused) and error.reason == NOT_KAFKA:
            running = self._running_dev()
            return Failure(f"{error}{f'; {running}' if running else ', such as 9092'}", exits.UNREACHABLE)
        if isinstance(error, Refused):
            return Failure(str(error), exits.DENIED)
        if isinstance(error, Unreachable) and error.broker is not None and self.cluster.knows(error.broker):
            about = about.removeprefix(f"broker {error.broker}: ")
            return Failure(f"{about}{error}; {SEE_HEALTH}", exits.UNREACHABLE)
        if not isinstance(error, NotConnected) and self._has_a_broker():
            return Failure(
                f"{about}a broker answers at {self.servers}, but not to this request ({error}); without a majority of "
                f"its voters a cluster has no controller: {SEE_HEALTH}",
                exits.UNREACHABLE,
            )
        advice = "" if "," in self.servers else f"; {SEVERAL}"
        if self.is_default:
            advice = "; start one with `raftlog dev`, or name one: -b HOST:PORT"
        if running := self._running_dev():
            advice = f"; {running}"
        return Failure(f"{about}no broker answers at {self.servers} ({error}){advice}", exits.UNREACHABLE)

    def _running_dev(self) -> str:
        """Return which nodes of a `raftlog dev` answer, where an address on this machine was tried.

        That is the cluster with the address, or any if none has it.
        """
        from raftlog.cli.dev_nodes import HERE, running_at

        addresses = addresses_of(self.servers)
        if not all(host in HERE for host, _ in addresses):
            return ""
        return (not self.is_default and running_at("-b", addresses)) or running_at("-b")

    def _has_a_broker(self) -> bool:
        """Return whether a broker answers a request for which it needs no controller."""
        try:
            self.cluster.ask(ApiKey.METADATA, lambda make: make.MetadataRequest(topics=()), timeout_s=PROBE_S)
        except (KafkaError, Refused, Unreachable):
            return False
        return True

    def ask(
        self,
        api_key: int,
        build: Callable[[Any], Any],
        *,
        broker: int | None = None,
        about: str = "",
        needs: str = "",
    ) -> Any:
        """Return a broker's response, by default any broker's. Raise Failure; see `failures`."""
        try:
            return self.cluster.ask(api_key, build, broker=broker)
        except (KafkaError, Refused, Unreachable) as error:
            raise self.failure(error, about, needs=needs) from None

    def metadata(self) -> Metadata:
        """Return the metadata of all topics. Raise Failure."""
        with self.failures():
            return self.cluster.metadata()

    def topics(self) -> dict[str, TopicMetadata]:
        """Return the metadata of all topics by name. Raise Failure."""
        return self.metadata().topics

    def topic(self, name: str) -> TopicMetadata:
        """Return the metadata of one topic. Raise Failure."""
        found = self.topics().get(name)
        if found is None:
            raise Failure(f"there is no topic {name}", exits.NOT_FOUND)
        return found

    def describe_cluster(self, *, with_operations: bool = False, with_fenced: bool = False) -> Any:
        """Return the response to DescribeCluster. Raise Failure.

        It lists live brokers, and `with_fenced` all registered brokers, if the cluster knows KIP-1073.
        """
        return self.ask(
            ApiKey.DESCRIBE_CLUSTER,
            lambda make: make.DescribeClusterRequest(
                include_cluster_authorized_operations=with_operations, include_fenced_brokers=with_fenced
            ),
        )

    def brokers(self) -> list[Any]:
        """Return the live brokers, by id. Raise Failure."""
        return sorted(self.describe_cluster().brokers, key=lambda each: int(each.broker_id))

    def demand(self, operation: str) -> None:
        """Raise Failure if the user lacks authorization for the cluster.

        Commands check beforehand where a response would just be empty.
        """
        if not self.may(operation):
            raise Failure(f"not authorized: this needs {operation} of the cluster", exits.DENIED)

    def may(self, operation: str) -> bool:
        """Return whether the user of this client has a right to the cluster as a whole. Raise Failure."""
        from raftlog.security.acls import Operation

        allowed = self.describe_cluster(with_operations=True).cluster_authorized_operations
        return bool(allowed >> int(Operation[operation]) & 1)


def refusal(error: KafkaError, about: str = "", *, needs: str = "") -> Failure:
    """Return the end of a command over a broker's error; `needs` is the operation that it required."""
    return Failure(f"{about}{words_of(error, needs)}", code_of(error))


def words_of(error: KafkaError, needs: str = "") -> str:
    """Return an error in words: what the user lacks, else the broker's message, else the name of the error."""
    name = type(error).__name__
    said = error.message or _WORDS.get(type(error)) or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    return not_authorized(name, needs) or said.rstrip(".")


def with_name(name: str, said: str) -> str:
    """Return the words about something with its name before them, unless they name it as a topic or group."""
    is_named = re.search(rf"\b(?:topic|group) {re.escape(name)}(?![\w.-])", said)
    return said if is_named else f"{name}: {said}"


def code_of(error: KafkaError) -> int:
    """Return the exit code for an error."""
    return _CODES.get(type(error), exits.FAILED)


def print_results(results: Iterable[tuple[str, Any, str]], *, needs: str) -> int:
    """Print the line of each result, or its failure on standard error; return the first failure's exit code.

    A result is its name, what the broker said of it (with error_code), and the line for success.
    """
    code = 0
    for name, result, line in results:
        if not result.error_code:
            print(line)
            continue
        error = from_code(result.error_code, getattr(result, "error_message", None))
        print(f"raftlog: {printable(with_name(name, words_of(error, needs)))}", file=sys.stderr)
        code = code or code_of(error)
    return code


def _checked(servers: str, where: str) -> str:
    """Return servers if each has a valid address. Raise Failure otherwise."""
    from raftlog.base.config.network import MAX_PORT, is_host

    for each in map(str.strip, servers.split(",")):
        protocol, _, address = each.rpartition("://")  # librdkafka passes over a protocol
        before, bracket, after = address.rpartition("]")
        host, colon, port = after.rpartition(":") if ":" in after else (after, "", "")
        host = before.removeprefix("[") if bracket else host
        fault = ""
        if protocol.upper() not in ("", *PROTOCOLS):
            fault = f"{protocol} is no protocol of Kafka's listeners; expected HOST:PORT"
            if protocol.lower() in ("http", "https"):
                fault = "expected HOST:PORT of Kafka; options for URLs are --http and --registry"
        elif colon and not (port.isdecimal() and 0 < int(port) <= MAX_PORT):
            fault = f"the port must be a number from 1 to {MAX_PORT}, but is {port!r}"
        elif host and not is_host(host):
            fault = f"{host!r} is neither a host name nor an IP address"
        if fault:
            raise Failure(f"{where} {each}: {fault}", exits.USAGE)
    return servers
