"""Settings of a client (-X and -F), by librdkafka's names: which ones raftlog knows, and the login that they mean.

A setting of -X must have an effect on the command. A file (-F) may serve several programs. Names there that other
commands or other clients know are passed over, unless they are about security.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from raftlog.cli import exits
from raftlog.cli.contexts import HTTP_SETTINGS
from raftlog.cli.exits import Failure

if TYPE_CHECKING:
    import ssl

    from raftlog.client.connection import Dialer
    from raftlog.security.sasl_client import Login

DEFAULT_PORT: Final = 9092
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
FROM_SYSTEM: Final = "probe"
"""librdkafka's word for the authorities that the system has."""
CERTIFICATE_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
OIDC: Final = {
    "url": "sasl.oauthbearer.token.endpoint.url",
    "client_id": "sasl.oauthbearer.client.id",
    "client_secret": "sasl.oauthbearer.client.secret",
}
LOGIN_SETTINGS: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.method",
    *OIDC.values(),
    "sasl.oauthbearer.scope",
    "https.ca.location",
    *CERTIFICATE_FILES,
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
)
SHARED_SETTINGS: Final = ("bootstrap.servers", "client.id", *LOGIN_SETTINGS)
"""The settings of every command."""
PRODUCER_SETTINGS: Final = (
    "acks",
    "compression.type",
    "enable.idempotence",
    "linger.ms",
    "message.max.bytes",
)
CONSUMER_SETTINGS: Final = (
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "enable.auto.commit",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "group.id",
    "group.instance.id",
    "heartbeat.interval.ms",
    "isolation.level",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "session.timeout.ms",
)
SHARE_SETTINGS: Final = ("fetch.min.bytes", "fetch.wait.max.ms")
"""The settings of a member of a share group; the rest are configs of the group."""
ALIASES: Final = {
    "compression.codec": "compression.type",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
}
"""Other names of librdkafka and of the Java client for the same settings."""
_OTHER_NAMES: Final = """
allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
auto.commit.enable background.event.cb batch.num.messages batch.size broker.address.family broker.address.ttl
broker.version.fallback builtin.features check.crcs client.dns.lookup client.rack compression.level
connections.max.idle.ms consume.callback.max.messages coordinator.query.interval.ms debug
delivery.report.only.error delivery.timeout.ms dr_cb enable.auto.offset.store enable.gapless.guarantee
enable.metrics.push enable.partition.eof enable.random.seed enabled_events fetch.error.backoff.ms
fetch.max.bytes fetch.queue.backoff.ms group.protocol group.protocol.type group.remote.assignor
internal.termination.signal log.connection.close log.queue log.thread.name log_level max.in.flight
max.in.flight.requests.per.connection message.copy.max.bytes message.send.max.retries message.timeout.ms
metadata.max.age.ms metadata.recovery.strategy offset.store.method partition.assignment.strategy partitioner
plugin.library.paths queue.buffering.backpressure.threshold queue.buffering.max.kbytes
queue.buffering.max.messages queued.max.messages.kbytes queued.min.messages receive.message.max.bytes
reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries
retry.backoff.max.ms retry.backoff.ms socket.blocking.max.ms socket.connection.setup.timeout.ms
socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes
socket.send.buffer.bytes socket.timeout.ms statistics.interval.ms sticky.partitioning.linger.ms
topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms
topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse transaction.timeout.ms transactional.id
"""
NAME_MAX_CHARS: Final = 100
"""The part of an unknown name that is compared with known names."""
PASSED_OVER: Final = frozenset((*_OTHER_NAMES.split(), *HTTP_SETTINGS))
"""Names of librdkafka and of contexts that a file may have, and that have no effect here."""


def read_settings(given: Sequence[str]) -> dict[str, str]:
    """Read NAME=VALUE settings. Raise Failure for any other form."""
    from raftlog.base.config.files import parse_override

    try:
        return dict(map(parse_override, given))
    except ValueError as error:
        raise Failure(str(error), exits.USAGE) from None


def read_file(path: Path) -> dict[str, str]:
    """Return the settings in a file that have an effect. Raise Failure for an unreadable file or an unknown name."""
    from raftlog.base.config.files import parse_properties

    try:
        found = _by_usual_names(dict(parse_properties(path.read_text("utf-8-sig"))))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Failure(f"{path}: {reason}", exits.USAGE) from None
    known = dict.fromkeys((*SHARED_SETTINGS, *PRODUCER_SETTINGS, *CONSUMER_SETTINGS))
    if unknown := [name for name in found if name not in known and name not in PASSED_OVER]:
        raise Failure(f"{path}: {_unknown(unknown[0], known, is_in_file=True)}", exits.USAGE)
    return {name: value for name, value in found.items() if name in known}


def checked_options(given: Sequence[str], known: Collection[str]) -> dict[str, str]:
    """Return the settings of -X. Raise Failure for a name that has no effect on the command."""
    found = _by_usual_names(read_settings(given))
    known = (*SHARED_SETTINGS, *known)
    if unknown := [name for name in found if name not in known]:
        raise Failure(f"-X {_unknown(unknown[0], known)}", exits.USAGE)
    return found


def _by_usual_names(settings: Mapping[str, str]) -> dict[str, str]:
    return {ALIASES.get(name, name): value for name, value in settings.items()}


def _unknown(name: str, known: Collection[str], *, is_in_file: bool = False) -> str:
    import difflib

    if name.startswith(("ssl.keystore.", "ssl.truststore.")):
        return f"{name}: only PEM files are read: ssl.certificate.location, ssl.key.location, ssl.ca.location"
    if near := difflib.get_close_matches(name[:NAME_MAX_CHARS], known, n=1, cutoff=0.75):
        return f"{name}: there is no such setting; did you mean {near[0]}?"
    if is_in_file and "." not in name:  # as the first word of a file of another kind
        return (
            f"{name}: there is no such setting; such a file has lines of NAME=VALUE, as "
            "bootstrap.servers=localhost:9092"
        )
    return f"{name}: this command only knows {', '.join(known)}"


def number(settings: Mapping[str, str], name: str, default: int) -> int:
    """Return a setting that is a whole number from 0 on. Raise Failure."""
    text = settings.get(name, str(default))
    if not text.isdecimal():
        raise Failure(f"{name}: must be a whole number, not {text!r}", exits.USAGE)
    return int(text)


def is_on(settings: Mapping[str, str], name: str, *, default: bool = True) -> bool:
    """Return a setting that is true or false. Raise Failure."""
    text = settings.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise Failure(f"{name}: must be true or false, not {text!r}", exits.USAGE)
    return text == "true"


def choice(settings: Mapping[str, str], name: str, allowed: Collection[str], default: str) -> str:
    """Return a setting that is one of several words. Raise Failure."""
    found = settings.get(name, default).lower()
    if found not in allowed:
        raise Failure(f"{name}: must be one of {', '.join(allowed)}", exits.USAGE)
    return found


def addresses_of(servers: str) -> list[tuple[str, int]]:
    """Return the hosts and ports in a list with commas between, as librdkafka reads it."""
    found: list[tuple[str, int]] = []
    for each in filter(None, (each.strip() for each in servers.split(","))):
        address = each.rpartition("://")[2]
        host, colon, port = address.rpartition(":")
        if not colon or "]" in port:  # no port is named
            host, port = address, str(DEFAULT_PORT)
        found.append((host.strip("[]"), int(port)))
    return found


def dialer_of(settings: Mapping[str, str]) -> Dialer:
    """Return how to connect with these settings. Raise Failure."""
    from raftlog.client.connection import Dialer

    protocol = settings.get("security.protocol", PROTOCOLS[0]).upper()
    if protocol not in PROTOCOLS:
        raise Failure(f"security.protocol: must be one of {', '.join(PROTOCOLS)}", exits.USAGE)
    check_files(settings)
    login = _login_of(settings) if protocol.startswith("SASL_") else None
    return Dialer(_context_of(settings) if protocol.endswith("SSL") else None, login)


def check_files(settings: Mapping[str, str]) -> None:
    """Raise Failure for a setting with a missing file: OpenSSL does not say which file."""
    for name in CERTIFICATE_FILES:
        check_file(name, settings.get(name, ""))


def check_file(name: str, path: str) -> None:
    """Raise Failure, which names the setting or option, if a file is missing."""
    if not path or path == FROM_SYSTEM:
        return
    try:
        Path(path).stat()
    except OSError as error:
        raise Failure(f"{name}: {path}: {error.strerror}", exits.USAGE) from None


def _login_of(settings: Mapping[str, str]) -> Callable[[], Login]:
    from raftlog.security.sasl_client import MECHANISMS, OAUTHBEARER, Login

    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "")).upper()
    if mechanism not in MECHANISMS:
        raise Failure(f"sasl.mechanism: must be one of {', '.join(MECHANISMS)}", exits.USAGE)
    if mechanism == OAUTHBEARER:
        return _oidc_login_of(settings)
    for name in ("sasl.username", "sasl.password"):
        if not settings.get(name):
            raise Failure(f"{name}: is required to log in", exits.USAGE)
    login = Login(mechanism, settings["sasl.username"], settings["sasl.password"])
    return lambda: login


def _oidc_login_of(settings: Mapping[str, str]) -> Callable[[], Login]:
    from raftlog.client.oidc import Provider, fetch_token
    from raftlog.security.sasl_client import OAUTHBEARER, Login

    if settings.get("sasl.oauthbearer.method", "default").lower() != "oidc":
        raise Failure("sasl.oauthbearer.method: must be oidc", exits.USAGE)
    for name in OIDC.values():
        if not settings.get(name):
            raise Failure(f"{name}: is required to log in", exits.USAGE)
    if not settings[OIDC["url"]].startswith(("https://", "http://")):
        raise Failure(f"{OIDC['url']}: must begin with https:// or http://", exits.USAGE)
    provider = Provider(
        **{field: settings[name] for field, name in OIDC.items()},
        scope=settings.get("sasl.oauthbearer.scope", ""),
        ca=settings.get("https.ca.location"),
    )
    return lambda: Login(OAUTHBEARER, "", fetch_token(provider))


def _context_of(settings: Mapping[str, str]) -> ssl.SSLContext:
    import ssl

    authority = settings.get("ssl.ca.location", FROM_SYSTEM)
    is_folder = Path(authority).is_dir()
    files = None if authority == FROM_SYSTEM or is_folder else authority
    try:
        context = ssl.create_default_context(cafile=files, capath=authority if is_folder else None)
        if settings.get("ssl.endpoint.identification.algorithm", "https") != "https":
            context.check_hostname = False
        if not is_on(settings, "enable.ssl.certificate.verification"):
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certificate := settings.get("ssl.certificate.location"):
            key, password = settings.get("ssl.key.location"), settings.get("ssl.key.password")
            context.load_cert_chain(certificate, key, password)
    except OSError as error:
        raise Failure(f"the certificates cannot be used: {error.strerror or error}", exits.USAGE) from None
    return context
