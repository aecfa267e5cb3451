"""The settings of authentication and authorization. Only the table, and its meaning for each listener.

Names are Kafka's. A setting of one listener is written `listener.name.NAME.setting`, a setting of a single mechanism
`listener.name.NAME.MECHANISM.setting`, with both names in lower case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from raftlog.base.config.setting import setting, words
from raftlog.base.handshake import SECRET_MIN_BYTES
from raftlog.base.principals import parse_super_users

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_WITH_JAAS: Final = MECHANISMS[:3]
"""The mechanisms with JAAS lines that are read here; OAUTHBEARER's is in `config.oauth`."""
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
NO_AUTHORIZER: Final = (
    f"no authorizer is configured: set authorizer.class.name={STANDARD_AUTHORIZER} on every node; "
    "`raftlog dev --secure` runs a cluster that has it"
)
"""The answer to requests about ACLs in a cluster without."""
LISTENER_PREFIX: Final = "listener.name."

SASL_PROTOCOLS: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})

_DAY_MS: Final = 86_400_000

_MECHANISMS_SETTING: Final = "sasl.enabled.mechanisms"
_REAUTH_SETTING: Final = "connections.max.reauth.ms"
_JAAS_SETTING: Final = "sasl.jaas.config"

LOGINS_OF_LISTENERS: Final = (
    _MECHANISMS_SETTING,
    _REAUTH_SETTING,
    *(f"{each.lower()}.{_JAAS_SETTING}" for each in _WITH_JAAS),
)
"""The settings of logins that a listener may have of its own."""


class ListenerLogins(NamedTuple):
    """The authentication of one listener's clients. Its text form hides the passwords."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str] = MappingProxyType({})
    max_reauth_ms: int = 0
    """How long a login is valid; 0: as long as the connection."""

    def __repr__(self) -> str:
        return f"ListenerLogins({self.mechanisms}, {len(self.plain_users)} users of PLAIN)"


class Override(NamedTuple):
    """A setting of one listener, and perhaps of one mechanism of it."""

    listener: str
    mechanism: str | None
    name: str


def read_cluster_secret(text: str) -> bytes:
    """Return the secret of the cluster's own connections. Raise ValueError if it is too short."""
    secret = text.encode()
    if len(secret) < SECRET_MIN_BYTES:
        raise ValueError(
            f"must have at least {SECRET_MIN_BYTES} bytes; unset, it is derived from controller.quorum.voters"
        )
    return secret


def _read_authorizer(name: str) -> str:
    if name not in ("", STANDARD_AUTHORIZER):
        raise ValueError(f"must be {STANDARD_AUTHORIZER} or empty")
    return name


@dataclass(frozen=True, eq=False)
class SecuritySettings:
    """Authentication and authorization."""

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        _MECHANISMS_SETTING,
        "list",
        (),
        "How clients of SASL listeners may log in; listener.name.NAME.sasl.enabled.mechanisms for one listener",
        choices=MECHANISMS,
    )
    connections_max_reauth_ms: int = setting(
        _REAUTH_SETTING,
        "long",
        0,
        "A login holds this long, then the client logs in again; 0 for ever",
        at_least=0,
    )
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        "int",
        100,
        "A failed login is answered this much later",
        at_least=0,
        at_most=10_000,
    )
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size",
        "int",
        512 * 1024,
        "Most bytes of a request before its connection has logged in",
        at_least=1024,
    )
    delegation_token_secret_key: str = setting(
        "delegation.token.secret.key",
        "password",
        "",
        "Makes delegation tokens, and must be the same on every node; empty: there are none",
    )
    delegation_token_max_lifetime_ms: int = setting(
        "delegation.token.max.lifetime.ms",
        "long",
        7 * _DAY_MS,
        "No delegation token can be renewed beyond this age",
        at_least=1,
    )
    delegation_token_expiry_time_ms: int = setting(
        "delegation.token.expiry.time.ms",
        "long",
        _DAY_MS,
        "A delegation token expires this long after it was made or renewed",
        at_least=1,
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        "delegation.token.expiry.check.interval.ms",
        "long",
        3_600_000,
        "How often the controller removes delegation tokens that have expired",
        at_least=1,
    )
    authorizer_class_name: str = setting(
        "authorizer.class.name",
        "string",
        "",
        "The StandardAuthorizer has rights checked by rules; empty: everyone may do everything",
        read=_read_authorizer,
        show=str,
    )
    super_users: tuple[str, ...] = setting(
        "super.users",
        "string",
        (),
        "Super users, with all rights, as User:NAME;User:NAME",
        read=parse_super_users,
        show=";".join,
    )
    allow_everyone_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found",
        "boolean",
        False,
        "Everyone may do everything with what no rule is about; it does not count at the controllers' listener",
    )
    controller_anonymous_clients: bool = setting(
        "raftlog.controller.anonymous.clients",
        "boolean",
        False,
        "Kafka clients (--bootstrap-controller) may use the controllers' listener without a certificate",
    )


def split_override(name: str) -> Override | None:
    """Return the parts of a setting of one listener; None if it is not such a setting, or not supported."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    if rest in (_MECHANISMS_SETTING, _REAUTH_SETTING):
        return Override(listener.upper(), None, rest)
    mechanism, _, rest = rest.partition(".")
    if rest == _JAAS_SETTING and mechanism.upper() in _WITH_JAAS:
        return Override(listener.upper(), mechanism.upper(), rest)
    return None


def logins_of(
    listener: str,
    overrides: Mapping[str, str],
    *,
    mechanisms: tuple[str, ...],
    max_reauth_ms: int,
    fault: Callable[[str, str], None],
) -> ListenerLogins:
    """Return the logins of a SASL listener. Mistakes go to `fault`, with the setting's name."""
    users: dict[str, str] = {}
    for name, text in overrides.items():
        override = split_override(name)
        if override is None or override.listener != listener:
            continue
        try:
            if override.name == _MECHANISMS_SETTING:
                mechanisms = _read_mechanisms(words(text))
            elif override.name == _REAUTH_SETTING:
                max_reauth_ms = _read_milliseconds(text)
            else:
                users.update(_read_users(override, text))
        except ValueError as error:
            fault(name, str(error))
    if not mechanisms:
        fault(_MECHANISMS_SETTING, f"listener {listener} requires SASL, but no mechanism is enabled")
    if "PLAIN" in mechanisms and not users:
        fault(
            f"{LISTENER_PREFIX}{listener.lower()}.plain.{_JAAS_SETTING}",
            'PLAIN needs users: ...PlainLoginModule required user_NAME="password";',
        )
    return ListenerLogins(mechanisms, MappingProxyType(users), max_reauth_ms)


def _read_milliseconds(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError("must be a whole number, at least 0")
    return int(text)


def _read_mechanisms(names: Iterable[str]) -> tuple[str, ...]:
    mechanisms = tuple(names)
    for each in mechanisms:
        if each not in MECHANISMS:
            raise ValueError(f"must be of {', '.join(MECHANISMS)}")
    return mechanisms


def _read_users(override: Override, text: str) -> Mapping[str, str]:
    from raftlog.base.jaas import UnusableJaas, parse_jaas

    entry = parse_jaas(text)
    wanted = "PLAIN" if override.mechanism == "PLAIN" else "SCRAM"
    if entry.mechanism != wanted:
        raise UnusableJaas(f"names the login module of {entry.mechanism}, not of {override.mechanism}")
    return entry.users if wanted == "PLAIN" else {}
