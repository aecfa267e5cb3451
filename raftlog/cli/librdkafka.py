"""The parts that commands talking to a cluster share: a client of librdkafka, and its errors in words for a person.

librdkafka logs a line for every attempt to connect, twenty a second. Here it is silent (`-X log_level=6` undoes that),
and each error of its callback is reported once.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.listener_probe import why_closed
from raftlog.cli.refusals import UNPROVEN, not_authorized

_SILENT: Final = logging.Logger("librdkafka", logging.CRITICAL + 1)
"""Takes the lines of the log. No `log_level` would: a fatal error is above all levels."""

CERTIFICATE_FILES: Final = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
)
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
FIRST_TRY_S: Final = 0.5
CLOCKS_S: Final = 0.1
"""So much earlier than asked for librdkafka may say that it waited long enough."""
REFUSED_FOR_S: Final = 1.0
"""Logins may fail this long before a command gives up: a new user is not known to every broker at once."""

_DECORATION: Final = re.compile(r"^\S+/\S+: | \(after .*\)$")
"""The text that librdkafka puts around a reason: "ssl://host:port/id: … (after 0ms in state CONNECT)"."""
_ADDRESS: Final = re.compile(r"^(?:\w+://)?([^/\s]+)/")
"""The address in that text, which may be an advertised address."""
_UNPROVEN: Final = "certificate verify failed"


class Troubles:
    """The error callback of one client: remembers why a connection failed, says once that all of them did."""

    def __init__(self, bootstrap: str, *, plaintext: bool) -> None:
        """`plaintext`: the client has no security settings, so a listener may not answer for want of them."""
        self._bootstrap = bootstrap
        self._may_be_closed = plaintext
        self._reason = ""
        self._refused_at: float | None = None
        self._refused_by = bootstrap
        self._said = False
        self.quiet = False

    def __call__(self, error: Any) -> None:
        if error.name() == "_ALL_BROKERS_DOWN":
            self._look_if_closed()
            if not (self._said or self.quiet or self._refused_at is not None):
                self._said = True
                print(f"raftlog: {self._all_down()}; trying again", file=sys.stderr)
            return
        self._reason = UNPROVEN if _UNPROVEN in error.str() else _DECORATION.sub("", error.str())
        if error.name() in _HOPELESS and self._refused_at is None:
            self._refused_at = time.monotonic()
            if found := _ADDRESS.match(error.str()):
                self._refused_by = found[1]

    def _look_if_closed(self) -> None:
        """Look once whether the listener wants TLS or a login: to librdkafka, such a broker is just away."""
        if self._may_be_closed:
            self._may_be_closed = False
            if reason := why_closed(self._bootstrap):
                self._reason, self._refused_at = reason, time.monotonic()

    @property
    def refused(self) -> Failure | None:
        """The failure of a command after repeated failures of logins or handshakes, which a retry does not fix."""
        if self._refused_at is None or time.monotonic() - self._refused_at < REFUSED_FOR_S:
            return None
        self._said = True
        return Failure(self._all_down(), exits.DENIED)

    @contextmanager
    def told_at_the_end(self) -> Iterator[None]:
        """Suppress messages meanwhile: the caller ends with its own line if no broker answers."""
        before, self.quiet = self.quiet, True
        try:
            yield
        finally:
            self.quiet = before

    def failure(self, error: Any, client: Any, about: str = "", *, needs: str = "") -> Failure:
        """The failure of a command after a KafkaError; `needs` is the operation that it required."""
        self._said = True
        client.poll(0)  # the callback is only called from here
        code = exit_of(error)
        if code != exits.UNREACHABLE:
            return Failure(f"{about}{words_of(error, needs)}", code)
        self._look_if_closed()
        return Failure(f"{about}{self._all_down()}", code if self._refused_at is None else exits.DENIED)

    def _all_down(self) -> str:
        if self._refused_at is not None:
            return f"{self._refused_by}: {self._reason}"
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
    library = confluent_kafka()
    make = library.admin.AdminClient if kind == "AdminClient" else getattr(library, kind)
    given = client_settings(settings)
    troubles = Troubles(bootstrap, plaintext=is_plaintext({**defaults, **given}))
    check_files({**defaults, **given})
    silence = {} if "log_level" in given else {"logger": _SILENT}
    try:
        client = make({"bootstrap.servers": bootstrap, "error_cb": troubles, **silence, **defaults, **given})
    except library.KafkaException as error:
        raise Failure(error.args[0].str(), exits.USAGE) from None
    return client, troubles


def is_plaintext(settings: Mapping[str, object]) -> bool:
    """Whether a client with these settings neither speaks TLS nor logs in."""
    return str(settings.get("security.protocol", "plaintext")).lower() == "plaintext"


def check_files(settings: Mapping[str, object]) -> None:
    """Raise Failure for a setting with a missing file: client libraries do not say which file."""
    for name in CERTIFICATE_FILES:
        path = str(settings.get(name, ""))
        if not path or path == "probe":  # librdkafka's word for where systems have them
            continue
        try:
            Path(path).stat()
        except OSError as error:
            raise Failure(f"{name}: {path}: {error.strerror}", exits.USAGE) from None


def words_of(error: Any, needs: str = "") -> str:
    """Return a KafkaError in words; `needs` is the operation that was asked for."""
    said = str(error.str()).removeprefix("Broker: ").rstrip(".")
    return not_authorized(error.name(), needs) or said


def list_topics(client: Any, troubles: Troubles, timeout_s: float, topic: str | None = None) -> Any:
    """Return the cluster's metadata, of all topics or a single topic. Raise Failure, early if retries are useless."""
    with troubles.told_at_the_end():
        began, try_s = time.monotonic(), FIRST_TRY_S
        while True:
            end = min(time.monotonic() + try_s, began + timeout_s)
            try:
                return client.list_topics(*filter(None, [topic]), timeout=max(0.0, end - time.monotonic()))
            except confluent_kafka().KafkaException as error:
                client.poll(0)  # errors of connections are reported from here
                if (refused := troubles.refused) is not None:
                    raise refused from None
                now = time.monotonic()
                in_vain = now < end - CLOCKS_S  # it was not for want of time
                if in_vain or now >= began + timeout_s - CLOCKS_S:
                    raise troubles.failure(error.args[0], client) from None
            try_s *= 2  # an answer may take longer than a try


def exit_of(error: Any) -> int:
    """Return the exit code for a KafkaError."""
    return _EXIT_OF.get(error.name(), exits.FAILED)


def client_settings(settings: Sequence[str]) -> dict[str, str]:
    """Read NAME=VALUE settings. Raise Failure for any other form."""
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
