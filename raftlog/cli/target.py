"""Which cluster a command talks to, and asking it: every failure of a client library becomes one line and a code."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.librdkafka import Troubles, confluent_kafka, exit_of, open_client

LOCAL: Final = "localhost:9092"
TIMEOUT_S: Final = 10.0


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
        return open_client(
            kind, self.servers, defaults={**defaults, **self._from_file}, settings=self.settings
        )

    @cached_property
    def servers(self) -> str:
        """The bootstrap servers."""
        return self.bootstrap or self._from_file.get("bootstrap.servers", LOCAL)

    @cached_property
    def _from_file(self) -> dict[str, str]:
        if self.file is None:
            return {}
        from raftlog.base.config_files import parse_properties

        try:
            return dict(parse_properties(self.file.read_text()))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise Failure(f"{self.file}: {reason}", exits.USAGE) from None

    @cached_property
    def admin(self) -> Admin:
        """The cluster's admin client."""
        return Admin(self)

    @contextmanager
    def kafka_python(self) -> Iterator[Any]:
        """Give a KafkaAdminClient, for what librdkafka has no call for. Raises Failure."""
        kafka = _kafka_python()
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        timeout_ms = int(self.timeout_s * 1000)
        client = None
        try:
            client = kafka.KafkaAdminClient(
                bootstrap_servers=self.servers.split(","),
                bootstrap_timeout_ms=timeout_ms,
                request_timeout_ms=timeout_ms,
            )
            yield client
        except kafka.errors.KafkaError as error:
            raise self._failure(error) from None
        finally:
            if client is not None:
                client.close()

    def _failure(self, error: Any) -> Failure:
        name = type(error).__name__
        if name in _UNREACHABLE:
            return Failure(f"no broker answers at {self.servers}", exits.UNREACHABLE)
        if name in ("UnsupportedVersionError", "IncompatibleBrokerVersion"):
            return Failure("the cluster does not serve this request")
        said = str(error).removeprefix(f"[Error {getattr(error, 'errno', '')}] ")
        return Failure(f"{said or name}", _CODES.get(name, exits.FAILED))


_UNREACHABLE: Final = frozenset(
    {
        "NoBrokersAvailable",
        "KafkaConnectionError",
        "KafkaTimeoutError",
        "NodeNotReadyError",
        "RequestTimedOutError",
    }
)
_CODES: Final = {
    "UnknownTopicOrPartitionError": exits.NOT_FOUND,
    "GroupIdNotFoundError": exits.NOT_FOUND,
    "ClusterAuthorizationFailedError": exits.DENIED,
    "TopicAuthorizationFailedError": exits.DENIED,
}


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
        self._kafka_exception = confluent_kafka().KafkaException

    def failure(self, error: Any, about: str = "") -> Failure:
        """Return what a KafkaException means for a person."""
        kafka_error = error.args[0]
        message = self._troubles.explain(kafka_error, self.client)
        return Failure(f"{about}{message}", exit_of(kafka_error))

    def ask(self, call: Callable[..., Any], *arguments: Any, about: str = "", **options: Any) -> Any:
        """Return what a call, or the future it returns, comes to. Raises Failure."""
        try:
            found = call(*arguments, request_timeout=self._timeout_s, **options)
            return self.wait(found, about) if hasattr(found, "result") else found
        except self._kafka_exception as error:
            raise self.failure(error, about) from None
        except (ValueError, TypeError) as error:
            raise Failure(f"{about}{error}", exits.USAGE) from None

    def wait(self, future: Any, about: str = "") -> Any:
        """Return what a future comes to. Raises Failure."""
        try:
            return future.result(self._timeout_s + 5)
        except self._kafka_exception as error:
            raise self.failure(error, about) from None

    def topics(self) -> dict[str, Any]:
        """Return the metadata of all topics by name. Raises Failure."""
        return dict(self.metadata().topics)

    def topic(self, name: str) -> Any:
        """Return the metadata of one topic. Raises Failure."""
        found = self.topics().get(name)  # asking for it by its name would create it
        if found is None:
            raise Failure(f"there is no topic {name}", exits.NOT_FOUND)
        return found

    def metadata(self) -> Any:
        """Return the cluster's metadata. Raises Failure."""
        try:
            return self.client.list_topics(timeout=self._timeout_s)
        except self._kafka_exception as error:
            raise self.failure(error) from None


def settle(admin: Admin, futures: Mapping[Any, Any], tell: Callable[[Any, Any], None]) -> int:
    """Tell each result, and each failure on standard error; returns the first failure's exit code."""
    code = 0
    for key, future in futures.items():
        try:
            tell(key, admin.wait(future, f"{key}: "))
        except Failure as failure:
            print(f"raftlog: {failure}", file=sys.stderr)
            code = code or failure.code
    return code
