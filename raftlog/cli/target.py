"""Which cluster a command talks to, and asking it: every failure of a client library becomes one line and a code."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.librdkafka import (
    Troubles,
    check_files,
    client_settings,
    confluent_kafka,
    is_plaintext,
    list_topics,
    open_client,
)
from raftlog.cli.listener_probe import why_closed
from raftlog.cli.refusals import not_authorized

if TYPE_CHECKING:
    from raftlog.cli.wire import Wire

LOCAL: Final = "localhost:9092"
TIMEOUT_S: Final = 10.0
AGAIN_AFTER_S: Final = 0.2
LOOK_EVERY_S: Final = 0.2
"""While a command waits for an answer: whether its logins fail."""


@dataclass(frozen=True)
class Target:
    """A cluster and how to reach it: what -b, -X, -F and --timeout said. `bootstrap` "" is the file's, or localhost."""

    bootstrap: str = ""
    settings: tuple[str, ...] = ()
    file: Path | None = None
    timeout_s: float = TIMEOUT_S
    _open: list[Any] = field(default_factory=list)

    def client(
        self, kind: Literal["Producer", "Consumer", "AdminClient"], defaults: Mapping[str, object]
    ) -> tuple[Any, Troubles]:
        """Return a client of librdkafka and its troubles. Raises Failure when a setting is refused."""
        file = {name: value for name, value in self._from_file.items() if name != "bootstrap.servers"}
        return open_client(kind, self.servers, defaults={**defaults, **file}, settings=self.settings)

    @cached_property
    def servers(self) -> str:
        """The bootstrap servers. Raise Failure for an invalid port."""
        if self.bootstrap:
            return _checked(self.bootstrap, "-b")
        return _checked(self._from_file.get("bootstrap.servers", LOCAL), str(self.file))

    @cached_property
    def _from_file(self) -> dict[str, str]:
        if self.file is None:
            return {}
        from raftlog.base.config_files import parse_properties

        try:
            return dict(parse_properties(self.file.read_text("utf-8-sig")))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise Failure(f"{self.file}: {reason}", exits.USAGE) from None

    @property
    def login_settings(self) -> dict[str, str]:
        """The settings of a file that are about the login, and all of -X. Raises Failure."""
        file = {name: value for name, value in self._from_file.items() if name in LOGIN_SETTINGS}
        found = {**file, **client_settings(self.settings)}
        check_files(found)
        return found

    @contextmanager
    def wire(self) -> Iterator[Wire]:
        """Give a connection for what no client library asks, to the first server that lets us in. Raises Failure."""
        from raftlog.cli.wire import reach

        given = self.login_settings
        if unknown := [name for name in given if name not in LOGIN_SETTINGS]:
            known = ", ".join(LOGIN_SETTINGS)
            raise Failure(f"-X {unknown[0]}: this command only knows {known}", exits.USAGE)
        with reach(self.servers, given, self.timeout_s) as wire:
            try:
                yield wire
            except OSError as error:
                if reason := self._why_closed():
                    raise Failure(f"{self.servers}: {reason}", exits.DENIED) from None
                raise Failure(f"{self.servers}: {error.strerror or error}", exits.UNREACHABLE) from None

    @cached_property
    def admin(self) -> Admin:
        """The cluster's admin client."""
        return Admin(self)

    def ask_kafka_python(self, call: Callable[[Any], Any], needs: str = "") -> Any:
        """Return what a call of a KafkaAdminClient comes to, for what librdkafka has none for. Raises Failure.

        `needs` is the operation that the user must be allowed. A stock client may turn to a broker that has just died,
        and does not try another: here it is tried again.
        """
        login = self._kafka_python_login()
        kafka = _kafka_python()
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        deadline = time.monotonic() + self.timeout_s
        while True:
            left_ms = int(max(0.1, deadline - time.monotonic()) * 1000)
            try:
                with _closing(kafka, self.servers, left_ms, login) as client:
                    return call(client)
            except kafka.errors.KafkaError as error:
                failure = self._failure(error, needs)
                if failure.code != exits.UNREACHABLE or time.monotonic() + AGAIN_AFTER_S > deadline:
                    raise failure from None
            time.sleep(AGAIN_AFTER_S)

    def _kafka_python_login(self) -> dict[str, Any]:
        """Return kafka-python's settings for librdkafka's login settings. Raise Failure for other settings of -X; a
        file may have any, for other commands.
        """
        given = client_settings(self.settings)
        if others := [name for name in given if name not in LOGIN_SETTINGS and name != "bootstrap.servers"]:
            known = ", ".join(LOGIN_SETTINGS)
            raise Failure(f"-X {others[0]}: kafka-python does this, which knows only {known}", exits.USAGE)
        all_of_them = {**self._from_file, **given}
        check_files(all_of_them)
        return {
            name: read(all_of_them[setting])
            for setting, (name, read) in LOGIN_SETTINGS.items()
            if setting in all_of_them
        }

    def _why_closed(self) -> str:
        """Return what the listener wants of a client without security settings, "" if they are not to blame."""
        settings = {**self._from_file, **client_settings(self.settings)}
        return why_closed(self.servers) if is_plaintext(settings) else ""

    def _failure(self, error: Any, needs: str) -> Failure:
        name = type(error).__name__
        if name in _UNREACHABLE:
            if reason := self._why_closed():
                return Failure(f"{self.servers}: {reason}", exits.DENIED)
            return Failure(f"no broker answers at {self.servers}", exits.UNREACHABLE)
        if words := not_authorized(name, needs):
            return Failure(words, exits.DENIED)
        if name in ("UnsupportedVersionError", "IncompatibleBrokerVersion"):
            return Failure("the cluster does not serve this request")
        said = str(error).removeprefix(f"[Error {getattr(error, 'errno', '')}] ")
        if "Response" in said:  # kafka-python puts all of it there, as Python writes it
            said = str(getattr(error, "description", ""))
        return Failure(said.rstrip(".") or name, CODES.get(name, exits.FAILED))


def _checked(servers: str, where: str) -> str:
    """Client libraries say of an address that is none that no broker answers there, or fail in their own ways."""
    from raftlog.base.config_network import MAX_PORT, is_host

    for each in map(str.strip, servers.split(",")):
        address = each.rpartition("://")[2]  # librdkafka passes over a protocol
        before, bracket, after = address.rpartition("]")
        host, colon, port = after.rpartition(":") if ":" in after else (after, "", "")
        host = before.removeprefix("[") if bracket else host
        fault = ""
        if colon and not (port.isdecimal() and 0 < int(port) <= MAX_PORT):
            fault = f"the port must be a number from 1 to {MAX_PORT}, but is {port!r}"
        elif host and not is_host(host):
            fault = f"{host!r} is neither a host name nor an IP address"
        if fault:
            raise Failure(f"{where} {each}: {fault}", exits.USAGE)
    return servers


_UNREACHABLE: Final = frozenset(
    {
        "NoBrokersAvailable",
        "KafkaConnectionError",
        "KafkaTimeoutError",
        "NodeNotReadyError",
        "RequestTimedOutError",
    }
)
LOGIN_SETTINGS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "security.protocol": ("security_protocol", str.upper),
    "sasl.mechanism": ("sasl_mechanism", str),
    "sasl.mechanisms": ("sasl_mechanism", str),
    "sasl.username": ("sasl_plain_username", str),
    "sasl.password": ("sasl_plain_password", str),
    "ssl.ca.location": ("ssl_cafile", str),
    "ssl.certificate.location": ("ssl_certfile", str),
    "ssl.key.location": ("ssl_keyfile", str),
    "ssl.key.password": ("ssl_password", str),
    "ssl.endpoint.identification.algorithm": ("ssl_check_hostname", lambda text: text == "https"),
}
"""librdkafka's settings of a login, with kafka-python's name of each and how its value is read."""
CODES: Final = {
    "UnknownTopicOrPartitionError": exits.NOT_FOUND,
    "GroupIdNotFoundError": exits.NOT_FOUND,
    "ClusterAuthorizationFailedError": exits.DENIED,
    "GroupAuthorizationFailedError": exits.DENIED,
    "TopicAuthorizationFailedError": exits.DENIED,
}


def kafka_topic_partition(topic: str, partition: int) -> Any:
    """Return kafka-python's TopicPartition."""
    return _kafka_python().TopicPartition(topic, partition)


def kafka_error(name: str) -> Any:
    """Return kafka-python's error class of this name, its result for a deleted group; "OK": NoError."""
    errors = _kafka_python().errors
    return errors.NoError if name == "OK" else getattr(errors, name, errors.UnknownError)


def kafka_error_of(code: int) -> Any:
    """Return kafka-python's error class for a code of Kafka's protocol."""
    return _kafka_python().errors.for_code(code)


@contextmanager
def _closing(kafka: Any, servers: str, timeout_ms: int, login: Mapping[str, Any]) -> Iterator[Any]:
    """Give a KafkaAdminClient for one call, which may try two brokers in its time."""
    client = kafka.KafkaAdminClient(
        bootstrap_servers=servers.split(","),
        bootstrap_timeout_ms=timeout_ms,
        request_timeout_ms=max(100, timeout_ms // 2),
        **login,
    )
    try:
        yield client
    finally:
        client.close()


def _kafka_python() -> Any:
    try:
        import kafka
        import kafka.errors
    except ImportError:
        raise Failure("this needs another Kafka client: pip install kafka-python") from None
    return kafka


class Admin:
    """librdkafka's admin client. Its calls answer with futures; these wait for them."""

    def __init__(self, target: Target) -> None:
        self._timeout_s = target.timeout_s
        self.client, self._troubles = target.client("AdminClient", {})
        self._troubles.quiet = True  # a call ends with one line
        self._kafka_exception = confluent_kafka().KafkaException

    def failure(self, error: Any, about: str = "", *, needs: str = "") -> Failure:
        """Return what a KafkaException means for a person."""
        return self._troubles.failure(error.args[0], self.client, about, needs=needs)

    def ask(self, call: Callable[..., Any], *arguments: Any, needs: str = "", **options: Any) -> Any:
        """Return the result of a call, or of its future. Raise Failure.

        `needs` is the required operation, for the message to an unauthorized user.
        """
        try:
            found = call(*arguments, request_timeout=self._timeout_s, **options)
            return self.wait(found, needs=needs) if hasattr(found, "result") else found
        except self._kafka_exception as error:
            raise self.failure(error, needs=needs) from None
        except (ValueError, TypeError) as error:
            raise Failure(str(error), exits.USAGE) from None

    def wait(self, future: Any, about: str = "", *, needs: str = "") -> Any:
        """Return a future's result. Raise Failure with a message that begins with `about`."""
        deadline = time.monotonic() + self._timeout_s + 5
        while not future.done() and time.monotonic() < deadline:
            try:
                future.result(LOOK_EVERY_S)
            except TimeoutError:
                self._give_up_if_refused()
            except self._kafka_exception:
                break
        try:
            return future.result(0)
        except self._kafka_exception as error:
            raise self.failure(error, about, needs=needs) from None
        except TimeoutError:  # a client library that lost the answer
            raise Failure(f"{about}no answer within {self._timeout_s:g} s", exits.UNREACHABLE) from None

    def _give_up_if_refused(self) -> None:
        """Raise Failure once logins have failed for a while."""
        self.client.poll(0)  # errors of connections are reported from here
        if (refused := self._troubles.refused) is not None:
            raise refused

    def topics(self) -> dict[str, Any]:
        """Return the metadata of all topics by name. Raises Failure."""
        return dict(self.metadata().topics)

    def topic(self, name: str) -> Any:
        """Return the metadata of one topic. Raises Failure."""
        found = self.topics().get(name)  # asking for it by its name would create it
        if found is None:
            raise Failure(f"there is no topic {name}", exits.NOT_FOUND)
        return found

    def brokers(self) -> dict[int, Any]:
        """Return the live brokers by id. `metadata().brokers` also has brokers that were fenced a moment ago."""
        return {int(node.id): node for node in self.ask(self.client.describe_cluster).nodes}

    def metadata(self) -> Any:
        """Return the cluster's metadata. Raises Failure."""
        return list_topics(self.client, self._troubles, self._timeout_s)

    def demand(self, operation: str) -> None:
        """Raise Failure if the user lacks authorization for the cluster.

        Commands check beforehand where a client library ignores a refusal, loses it, or ends its process.
        """
        if not self.may(operation):
            raise Failure(f"not authorized: this needs {operation} of the cluster", exits.DENIED)

    def may(self, operation: str) -> bool:
        """Whether the user of this client has a right to the cluster as a whole. Raises Failure."""
        about = self.ask(self.client.describe_cluster, include_authorized_operations=True)
        return operation in {each.name for each in about.authorized_operations or ()}


def settle(admin: Admin, futures: Mapping[Any, Any], tell: Callable[[Any, Any], None], *, needs: str) -> int:
    """Call `tell` with each result, and report each failure on standard error; return the first failure's exit code."""
    code = 0
    for key, future in futures.items():
        try:
            tell(key, admin.wait(future, f"{key}: ", needs=needs))
        except Failure as failure:
            print(f"raftlog: {failure}", file=sys.stderr)
            code = code or failure.code
    return code
