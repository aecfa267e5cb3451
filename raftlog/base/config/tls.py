"""The settings of TLS, and their values for each listener. Opens no file.

Names are Kafka's. `listener.name.NAME.ssl...` overrides a setting for one listener, `raftlog.admin.ssl...` for the HTTP
admin API. The settings of other brokers' and controllers' listeners also apply to this node's connections to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from raftlog.base.config.security import LISTENER_PREFIX
from raftlog.base.config.setting import setting, settings_of
from raftlog.base.principals import parse_rules

TLS_PROTOCOLS: Final = frozenset({"SSL", "SASL_SSL"})
"""The security protocols of listeners that speak TLS."""

ADMIN_LISTENER: Final = "raftlog.admin"
"""The HTTP admin API among the listeners. Names of Kafka's listeners are in capitals."""

STORE_TYPES: Final = ("JKS", "PEM", "PKCS12")

_NO_JKS: Final = (
    "is JKS, which only Java reads: set it to PEM or PKCS12 (keytool -importkeystore -deststoretype pkcs12)"
)


def _rules(text: str) -> str:
    parse_rules(text)
    return text


def _lower(text: str) -> str:
    if text.lower() not in ("", "https"):
        raise ValueError("must be https, or empty")
    return text.lower()


@dataclass(frozen=True, eq=False)
class TlsSettings:
    """Certificates, keys, and trusted authorities."""

    ssl_keystore_type: str = setting(
        "ssl.keystore.type",
        "string",
        "JKS",
        "What holds the node's certificate and key; raftlog reads PEM and PKCS12",
        choices=STORE_TYPES,
    )
    ssl_keystore_location: str = setting(
        "ssl.keystore.location",
        "string",
        "",
        "File of the node's certificate chain and key; a new file is taken while the node runs",
    )
    ssl_keystore_certificate_chain: str = setting(
        "ssl.keystore.certificate.chain", "password", "", "The certificate chain itself, as PEM"
    )
    ssl_keystore_key: str = setting(
        "ssl.keystore.key", "password", "", "The certificate's key itself, as PEM"
    )
    ssl_keystore_password: str = setting(
        "ssl.keystore.password", "password", "", "Password of a PKCS12 store"
    )
    ssl_key_password: str = setting("ssl.key.password", "password", "", "Password of the key in PEM")
    ssl_truststore_type: str = setting(
        "ssl.truststore.type",
        "string",
        "JKS",
        "The format of the trusted certificates; raftlog reads PEM and PKCS12",
        choices=STORE_TYPES,
    )
    ssl_truststore_location: str = setting(
        "ssl.truststore.location",
        "string",
        "",
        "File of the trusted certificates of clients and other brokers; unset, brokers trust the system's",
    )
    ssl_truststore_certificates: str = setting(
        "ssl.truststore.certificates", "password", "", "The trusted certificates, as PEM"
    )
    ssl_truststore_password: str = setting(
        "ssl.truststore.password", "password", "", "Password of a PKCS12 store"
    )
    ssl_client_auth: str = setting(
        "ssl.client.auth",
        "string",
        "none",
        "Whether clients show a certificate",
        choices=("required", "requested", "none"),
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        "list",
        ("TLSv1.2", "TLSv1.3"),
        "The versions of TLS that are spoken",
        choices=("TLSv1.2", "TLSv1.3"),
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        "string",
        "https",
        "https: another broker's certificate must be for the host it advertises; empty: for any, "
        "and logins go to another node's HTTP API only with a truststore",
        nullable=False,
        read=_lower,
    )
    ssl_principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules",
        "string",
        "DEFAULT",
        "How the name in a client's certificate becomes a user's",
        read=_rules,
    )


@dataclass(frozen=True, eq=False)
class ListenerTls(TlsSettings):
    """The TLS of one listener. Its text form hides passwords and keys."""

    listener: str = ""
    key_file: str = ""
    """PEM file of the key, if it is not in the keystore."""
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The setting that a value came from, by attribute: the listener's own, or the general setting."""

    @property
    def verifies_hosts(self) -> bool:
        """Whether another broker's certificate must be for the host that it advertises."""
        return self.ssl_endpoint_identification_algorithm == "https"

    @property
    def names_authorities(self) -> bool:
        """Whether the settings name the trusted authorities. Otherwise the system's count."""
        return bool(self.ssl_truststore_location or self.ssl_truststore_certificates)


class TlsOverride(NamedTuple):
    """A setting of TLS for one listener."""

    listener: str
    name: str


def split_tls_override(name: str) -> TlsOverride | None:
    """Return what a setting of one listener overrides; None if it is not a supported setting of TLS."""
    if name.startswith(f"{ADMIN_LISTENER}."):
        listener, rest = ADMIN_LISTENER, name.removeprefix(f"{ADMIN_LISTENER}.")
    elif name.startswith(LISTENER_PREFIX):
        listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
        listener = listener.upper()
    else:
        return None
    return TlsOverride(listener, rest) if rest in settings_of(TlsSettings) else None


def admin_tls_names() -> frozenset[str]:
    """Return the settings of TLS for the HTTP admin API alone."""
    return frozenset(f"{ADMIN_LISTENER}.{name}" for name in settings_of(TlsSettings))


def of_certificate_file(path: str) -> Mapping[str, str]:
    """Return the TLS that `raftlog.admin.ssl.certificate` stands for: this certificate, without client certificates."""
    return {
        f"{ADMIN_LISTENER}.ssl.keystore.type": "PEM",
        f"{ADMIN_LISTENER}.ssl.keystore.location": path,
        f"{ADMIN_LISTENER}.ssl.keystore.certificate.chain": "",
        f"{ADMIN_LISTENER}.ssl.keystore.key": "",
        f"{ADMIN_LISTENER}.ssl.keystore.password": "",
        f"{ADMIN_LISTENER}.ssl.client.auth": "none",
    }


def tls_of(
    listener: str,
    overrides: Mapping[str, str],
    get: Callable[[str], Any],
    fault: Callable[[str, str], None],
    *,
    listens: bool = True,
) -> ListenerTls:
    """Return the TLS of a listener. `get` returns the node's value of an attribute.

    Mistakes go to `fault`, with the setting's name. A node that does not `listens` there only connects to it.
    """
    table = settings_of(TlsSettings)
    values = {attribute: get(attribute) for attribute, _ in table.values()}
    names = {attribute: name for name, (attribute, _) in table.items()}
    for name, text in overrides.items():
        override = split_tls_override(name)
        if override is None or override.listener != listener:
            continue
        attribute, row = table[override.name]
        names[attribute] = name
        try:
            values[attribute] = row.parse(text)
        except ValueError as error:
            fault(name, row.fault_of(error, text))
    tls = ListenerTls(**values, listener=listener, names=names)
    _judge(tls, fault, listens=listens)
    return tls


def _judge(tls: ListenerTls, fault: Callable[[str, str], None], *, listens: bool) -> None:
    """Find settings that leave a listener incomplete, or contradict each other."""
    names = tls.names
    chain, key = tls.ssl_keystore_certificate_chain, tls.ssl_keystore_key
    _judge_store(tls, "keystore", inline="certificate_chain", fault=fault)
    _judge_store(tls, "truststore", inline="certificates", fault=fault)
    if listens and not (tls.ssl_keystore_location or chain):
        fault(
            names["ssl_keystore_location"],
            f"listener {tls.listener} speaks TLS and needs a certificate: name a file, or set "
            "ssl.keystore.certificate.chain and ssl.keystore.key",
        )
    if bool(chain) != bool(key):
        missing = "ssl_keystore_key" if chain else "ssl_keystore_certificate_chain"
        fault(names[missing], "is missing: certificate chain and key belong together")
    trusts = tls.ssl_truststore_location or tls.ssl_truststore_certificates
    if listens and tls.ssl_client_auth != "none" and not trusts:
        fault(
            names["ssl_truststore_location"],
            f"is missing, and {names['ssl_client_auth']}={tls.ssl_client_auth} needs it for the trusted authorities",
        )
    if tls.ssl_keystore_type == "PKCS12" and tls.ssl_key_password not in ("", tls.ssl_keystore_password):
        fault(names["ssl_key_password"], "differs from the store's, but a PKCS12 store has one password")
    if not tls.ssl_enabled_protocols:
        fault(names["ssl_enabled_protocols"], "must name a version of TLS")


def _judge_store(tls: ListenerTls, store: str, *, inline: str, fault: Callable[[str, str], None]) -> None:
    names = tls.names
    location, text = getattr(tls, f"ssl_{store}_location"), getattr(tls, f"ssl_{store}_{inline}")
    kind = getattr(tls, f"ssl_{store}_type")
    if not (location or text):
        return
    if kind == "JKS":
        fault(names[f"ssl_{store}_type"], _NO_JKS)
    elif kind != "PEM" and text:
        fault(names[f"ssl_{store}_type"], f"must be PEM for {names[f'ssl_{store}_{inline}']}")
    elif kind == "PEM" and getattr(tls, f"ssl_{store}_password"):
        fault(names[f"ssl_{store}_password"], "is for PKCS12; in PEM only the key has one, ssl.key.password")
    if location and text:
        fault(
            names[f"ssl_{store}_location"], f"stands beside {names[f'ssl_{store}_{inline}']}: set one of both"
        )


def demands_certificate(tls: Mapping[str, ListenerTls], listener: str) -> bool:
    """Return whether a listener refuses clients without a certificate."""
    return listener in tls and tls[listener].ssl_client_auth == "required"
