"""The settings of OAUTHBEARER authentication, and their values for each listener. Opens no file or address.

Names are Kafka's. `listener.name.NAME.sasl.oauthbearer...` overrides a setting for one listener, and so does
`listener.name.NAME.oauthbearer.sasl.oauthbearer...`, which has precedence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from raftlog.base.config.network import is_loopback
from raftlog.base.config.security import LISTENER_PREFIX
from raftlog.base.config.setting import SecretInText, setting, settings_of, words

OAUTHBEARER: Final = "OAUTHBEARER"

ALLOWED_URLS: Final = "raftlog.sasl.oauthbearer.allowed.urls"
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"

_MECHANISM_PREFIX: Final = "oauthbearer."
_JAAS: Final = "sasl.jaas.config"
_HANDLER: Final = "sasl.server.callback.handler.class"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_HANDLERS: Final = tuple(f"{_PACKAGE}.{each}OAuthBearerValidatorCallbackHandler" for each in ("", "secured."))


def _read_url(text: str) -> str:
    if not text:
        return text
    from urllib.parse import urlsplit  # takes 590 KB

    parts = urlsplit(text)
    if "@" in parts.netloc:
        raise SecretInText("must not contain a user or password: the verification keys are public")
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise ValueError("must be an absolute path on this machine, such as file:///etc/jwks.json")
    elif parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a file:, https: or http: address")
    return text


def _read_urls(text: str) -> tuple[str, ...]:
    return tuple(map(_read_url, words(text)))


@dataclass(frozen=True, eq=False)
class OauthSettings:
    """The keys of an identity provider, and the rules for tokens of this cluster."""

    oauth_jwks_url: str = setting(
        JWKS_URL,
        "string",
        "",
        "File (file:///path) or address (https://host/path) of the keys with which tokens are signed, as a JWKS",
        nullable=False,
        read=_read_url,
    )
    oauth_jwks_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "long",
        3_600_000,
        "The keys are fetched again after so long",
        at_least=1000,
    )
    oauth_jwks_retry_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "long",
        100,
        "First pause after keys could not be fetched; it doubles with each failure",
        at_least=1,
    )
    oauth_jwks_retry_max_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "long",
        10_000,
        "Longest such pause, and the least time between two fetches that tokens with an unknown key cause",
        at_least=1,
    )
    oauth_expected_audience: tuple[str, ...] = setting(
        "sasl.oauthbearer.expected.audience",
        "list",
        (),
        "A token's aud must have one of these; empty: any audience",
    )
    oauth_expected_issuer: str = setting(
        "sasl.oauthbearer.expected.issuer",
        "string",
        "",
        "A token's iss must be this; empty: any issuer whose key is in the JWKS",
        nullable=False,
    )
    oauth_clock_skew_seconds: int = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        "int",
        30,
        "How much the clocks of identity provider and broker may differ",
        at_least=0,
        at_most=3600,
    )
    oauth_scope_claim: str = setting(
        "sasl.oauthbearer.scope.claim.name",
        "string",
        "scope",
        "The claim with a token's scopes, which are checked for their form and give no rights",
    )
    oauth_sub_claim: str = setting(
        "sasl.oauthbearer.sub.claim.name",
        "string",
        "sub",
        "The claim with the user's name",
    )
    oauth_allowed_urls: tuple[str, ...] = setting(
        ALLOWED_URLS,
        "list",
        (),
        f"Addresses that {JWKS_URL} may name; a file needs no leave",
        read=_read_urls,
    )


class Trust(NamedTuple):
    """The file of authorities for the identity provider's certificate. Its text form hides the password."""

    location: str = ""
    """Empty: the system's authorities."""
    kind: str = "PEM"
    password: str = ""

    def __repr__(self) -> str:
        return f"Trust({self.location!r})"


@dataclass(frozen=True, eq=False)
class ListenerOauth(OauthSettings):
    """OAUTHBEARER authentication on one listener."""

    listener: str = ""
    trust: Trust = field(default_factory=Trust)
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The setting that a value came from, by attribute: the listener's own, or the general setting."""

    @property
    def jwks_path(self) -> str | None:
        """The file of the keys; None if they have an address."""
        from urllib.parse import unquote, urlsplit

        parts = urlsplit(self.oauth_jwks_url)
        return unquote(parts.path) if parts.scheme == "file" else None


_OF_LISTENERS: Final = frozenset(settings_of(OauthSettings).keys() - {ALLOWED_URLS})
OAUTH_OF_LISTENERS: Final = _OF_LISTENERS | {
    f"{_MECHANISM_PREFIX}{each}" for each in (*_OF_LISTENERS, _JAAS, _HANDLER)
}
"""The settings of OAUTHBEARER that a listener may have of its own."""


class OauthOverride(NamedTuple):
    """A setting of OAUTHBEARER for one listener; `is_narrow`: it names the mechanism too."""

    listener: str
    name: str
    is_narrow: bool


def split_oauth_override(name: str) -> OauthOverride | None:
    """Return what a setting of one listener overrides; None if it is not a setting of OAUTHBEARER."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    if rest not in OAUTH_OF_LISTENERS:
        return None
    bare = rest.removeprefix(_MECHANISM_PREFIX)
    return OauthOverride(listener.upper(), bare, bare != rest)


def oauth_of(
    listener: str,
    overrides: Mapping[str, str],
    get: Callable[[str], Any],
    fault: Callable[[str, str], None],
) -> ListenerOauth:
    """Return the OAUTHBEARER authentication of a listener. `get` returns the node's value of an attribute.

    Mistakes go to `fault`, with the setting's name.
    """
    table = settings_of(OauthSettings)
    values = {attribute: get(attribute) for attribute, _ in table.values()}
    names = {attribute: name for name, (attribute, _) in table.items()}
    trust = Trust()
    for override, name in sorted(_overrides_of(listener, overrides), key=lambda each: each[0].is_narrow):
        text = overrides[name]
        if override.name in table:
            attribute, row = table[override.name]
            names[attribute] = name
            try:
                values[attribute] = row.parse(text)
            except ValueError as error:
                fault(name, row.fault_of(error, text))
            continue
        try:
            if override.name == _JAAS:
                trust = _read_jaas(text)
            else:
                _judge_handler(text)
        except ValueError as error:
            fault(name, str(error))
    oauth = ListenerOauth(**values, listener=listener, trust=trust, names=names)
    _judge(oauth, fault)
    return oauth


def _overrides_of(listener: str, overrides: Iterable[str]) -> Iterable[tuple[OauthOverride, str]]:
    for name in overrides:
        override = split_oauth_override(name)
        if override is not None and override.listener == listener:
            yield override, name


def _read_jaas(text: str) -> Trust:
    """Read a JAAS line, of which a broker uses only the options for the address's authority."""
    from raftlog.base.jaas import UnusableJaas, parse_jaas

    entry = parse_jaas(text)
    if entry.mechanism != OAUTHBEARER:
        raise UnusableJaas(f"names the login module of {entry.mechanism}, not of {OAUTHBEARER}")
    options = dict(entry.options)
    prefix = "ssl.truststore."
    trust = Trust(
        options.pop(prefix + "location", ""),
        options.pop(prefix + "type", "PEM"),
        options.pop(prefix + "password", ""),
    )
    if any(name.startswith("unsecured") for name in options):
        raise UnusableJaas("has options of unsecured tokens, but raftlog requires signed tokens")
    if options:
        raise UnusableJaas(
            f"may only have the options {prefix}location, type and password: brokers do not log in"
        )
    if trust.kind not in ("PEM", "PKCS12"):
        raise UnusableJaas(f"{prefix}type must be PEM or PKCS12")
    return trust


def _judge_handler(name: str) -> None:
    if name.strip() not in _HANDLERS:
        raise ValueError(f"must be {_HANDLERS[0]} or unset: raftlog loads no Java classes")


def _judge(oauth: ListenerOauth, fault: Callable[[str, str], None]) -> None:
    """Find settings that would refuse every client, or accept tokens that anyone can make."""
    names, url = oauth.names, oauth.oauth_jwks_url
    if not url:
        fault(
            names["oauth_jwks_url"],
            f"must be set: listener {oauth.listener} offers {OAUTHBEARER}, and takes signed tokens only",
        )
    if oauth.trust.location and not url.startswith("https:"):
        fault(
            names["oauth_jwks_url"], "is no https: address, so ssl.truststore.location has nothing to verify"
        )
    if oauth.oauth_jwks_retry_ms > oauth.oauth_jwks_retry_max_ms:
        fault(
            names["oauth_jwks_retry_ms"],
            f"must be at most {names['oauth_jwks_retry_max_ms']} ({oauth.oauth_jwks_retry_max_ms})",
        )
    for attribute in ("oauth_sub_claim", "oauth_scope_claim"):
        if not getattr(oauth, attribute):
            fault(names[attribute], "must name a claim")


def keys_in_the_clear(oauth: ListenerOauth) -> bool:
    """Return whether others on the network could replace the identity provider's keys by their own."""
    from urllib.parse import urlsplit

    parts = urlsplit(oauth.oauth_jwks_url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")
