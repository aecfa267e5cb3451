"""The parts that commands talking to a cluster share: a client of librdkafka, and its troubles in words for a person.

librdkafka logs a line for every attempt to connect, twenty a second. Here it is silent (`-X log_level=6` undoes that),
and what it tells through its error callback is said once.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from raftlog.cli import exits
from raftlog.cli.exits import Failure

LOG_LEVEL: Final = "2"
"""syslog's critical."""

_HOPELESS: Final = ("_AUTHENTICATION", "_SSL")
"""Errors of a connection that come again with every attempt."""

_EXIT_OF: Final = {
    "UNKNOWN_TOPIC_OR_PART": exits.NOT_FOUND,
    "_UNKNOWN_TOPIC": exits.NOT_FOUND,
    "_UNKNOWN_PARTITION": exits.NOT_FOUND,
    "TOPIC_ALREADY_EXISTS": exits.EXISTS,
    "CLUSTER_AUTHORIZATION_FAILED": exits.DENIED,
    "TOPIC_AUTHORIZATION_FAILED": exits.DENIED,
    "GROUP_AUTHORIZATION_FAILED": exits.DENIED,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": exits.DENIED,
    "SASL_AUTHENTICATION_FAILED": exits.DENIED,
    "_AUTHENTICATION": exits.DENIED,
    "_RESOLVE": exits.UNREACHABLE,
    "_TRANSPORT": exits.UNREACHABLE,
    "_ALL_BROKERS_DOWN": exits.UNREACHABLE,
    "_TIMED_OUT": exits.UNREACHABLE,
    "_MSG_TIMED_OUT": exits.UNREACHABLE,
    "REQUEST_TIMED_OUT": exits.UNREACHABLE,
}
REFUSED_FOR_S: Final = 1.0
"""So long logins may fail before a command gives up: a user who was just made is not known to every broker yet."""

_DECORATION: Final = re.compile(r"^\S+/\S+: | \(after .*\)$")
"""The text that librdkafka puts around a reason: "host:port/id: … (after 0ms in state CONNECT)"."""


class Troubles:
    """The error callback of one client: remembers why a connection failed, says once that all of them did."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._reason = ""
        self._refused_at: float | None = None
        self._said = False
        self.quiet = False

    def __call__(self, error: Any) -> None:
        if error.name() == "_ALL_BROKERS_DOWN":
            if not (self._said or self.quiet or self._refused_at is not None):
                self._said = True
                print(f"raftlog: {self._all_down()}; trying again", file=sys.stderr)
            return
        self._reason = _DECORATION.sub("", error.str())
        if error.name() in _HOPELESS and self._refused_at is None:
            self._refused_at = time.monotonic()

    @property
    def refused(self) -> Failure | None:
        """The end of a command whose logins or handshakes have failed for a while, which trying again does not mend."""
        if self._refused_at is None or time.monotonic() - self._refused_at < REFUSED_FOR_S:
            return None
        self._said = True
        return Failure(self._all_down(), exits.DENIED)

    def failure(self, error: Any, client: Any, about: str = "") -> Failure:
        """Return the end of a command whose call failed with a KafkaError."""
        self._said = True
        client.poll(0)  # the callback is only called from here
        code = exit_of(error)
        if code != exits.UNREACHABLE:
            return Failure(f"{about}{error.str()}", code)
        return Failure(f"{about}{self._all_down()}", code if self._refused_at is None else exits.DENIED)

    def _all_down(self) -> str:
        if self._refused_at is not None:
            return f"{self._bootstrap}: {self._reason}"
        reason = f" ({self._reason})" if self._reason else ""
        return f"no broker answers at {self._bootstrap}{reason}"


def open_client(
    kind: Literal["Producer", "Consumer", "AdminClient"],
    bootstrap: str,
    *,
    defaults: Mapping[str, object],
    settings: Sequence[str],
) -> tuple[Any, Troubles]:
    """Return a client and its troubles; `settings` (NAME=VALUE) go before. Raises Failure."""
    library, troubles = confluent_kafka(), Troubles(bootstrap)
    make = library.admin.AdminClient if kind == "AdminClient" else getattr(library, kind)
    given = client_settings(settings)
    try:
        client = make(
            {
                "bootstrap.servers": bootstrap,
                "log_level": LOG_LEVEL,
                "error_cb": troubles,
                **defaults,
                **given,
            }
        )
    except library.KafkaException as error:
        raise Failure(error.args[0].str(), exits.USAGE) from None
    return client, troubles


def exit_of(error: Any) -> int:
    """Return the exit code for a KafkaError."""
    return _EXIT_OF.get(error.name(), exits.FAILED)


def client_settings(settings: Sequence[str]) -> dict[str, str]:
    """Read NAME=VALUE settings. Raises Failure when one is not of that form."""
    from raftlog.base.config import parse_override

    try:
        return dict(map(parse_override, settings))
    except ValueError as error:
        raise Failure(str(error), exits.USAGE) from None


def confluent_kafka() -> Any:
    """Return the client library. Raises Failure with what to install when it is not there."""
    try:
        import confluent_kafka.admin
    except ImportError:
        raise Failure("this needs a Kafka client: pip install confluent-kafka") from None
    return confluent_kafka
