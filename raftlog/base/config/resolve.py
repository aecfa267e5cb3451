"""The rules between settings, and the derived settings: addresses, voters, secret, folders.

Works on a draft in place, which holds read and derived values. Faults and warnings are collected, never raised, so that
all are reported at once. A setting that depends on a faulty setting is not checked further.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from raftlog.base.config.broker import ConfigWarning, NodeConfig
from raftlog.base.config.connections import limits_of_listeners, split_limit_override
from raftlog.base.config.cordon import ALL_DIRS, unknown_dirs
from raftlog.base.config.network import (
    EVERY_INTERFACE,
    SECURITY_PROTOCOLS,
    Listener,
    format_optional_address,
    format_voters,
    is_loopback,
    parse_address,
)
from raftlog.base.config.oauth import (
    ALLOWED_URLS,
    OAUTHBEARER,
    OauthSettings,
    keys_in_the_clear,
    oauth_of,
    split_oauth_override,
)
from raftlog.base.config.security import SASL_PROTOCOLS, logins_of, split_override
from raftlog.base.config.setting import settings_of
from raftlog.base.config.tls import (
    ADMIN_LISTENER,
    TLS_PROTOCOLS,
    TlsSettings,
    of_certificate_file,
    split_tls_override,
    tls_of,
)

NO_LOGINS: Final = (
    "controllers have PLAINTEXT or SSL: they authenticate by raftlog.cluster.secret, without logins"
)

HTTP_LISTENERS: Final = (
    ("raftlog.admin.listener", "admin_listener"),
    ("raftlog.schema.registry.listener", "schema_registry_listener"),
)
"""The settings of the ports that speak HTTP, with their fields."""

MAX_VOTERS = 7
"""More voters make every metadata change slower without more safety."""


@dataclass(slots=True)
class Draft:
    """A config in the making: values by attribute, the names of well-formed settings, and those of malformed
    settings.
    """

    values: dict[str, Any]
    given: set[str]
    faulty: set[str]
    overrides: Mapping[str, str]
    """Settings of single listeners, by their whole names."""
    faults: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[ConfigWarning] = field(default_factory=list)

    def get(self, attribute: str) -> Any:
        """Return a value or its default."""
        if attribute in self.values:
            return self.values[attribute]
        return _DEFAULTS[attribute]

    def fault(self, name: str, rule: str) -> None:
        self.faults.append((name, rule))

    def warn(self, event: str, **fields: object) -> None:
        self.warnings.append(ConfigWarning(event, fields))

    @property
    def is_controller(self) -> bool:
        return "controller" in self.get("roles")

    @property
    def is_broker(self) -> bool:
        return "broker" in self.get("roles")


_DEFAULTS: Mapping[str, Any] = {attribute: row.default for attribute, row in settings_of(NodeConfig).values()}


def resolve(draft: Draft, *, hostname: str, working_dir: str) -> None:
    """Complete and validate a draft in place."""
    _resolve_node_id(draft)
    if not draft.faulty & {
        "process.roles",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
    }:
        _resolve_listeners(draft)
        _judge_controller_listeners(draft)
        _judge_protocols(draft)
        _resolve_logins(draft)
        _resolve_oauth(draft)
        _resolve_tls(draft)
        _resolve_limits(draft)
        _resolve_advertised(draft, hostname)
        _resolve_inter_broker_listener(draft)
        if not draft.faulty & {"controller.quorum.voters", "node.id"} and _resolve_voters(draft, hostname):
            _judge_voters(draft)
    _resolve_secret(draft)
    _judge_admin(draft)
    _resolve_folders(draft, working_dir)
    _judge_relations(draft)


def _resolve_node_id(draft: Draft) -> None:
    several = len(draft.get("voters")) > 1 if "controller.quorum.voters" in draft.given else False
    if "node.id" not in draft.given | draft.faulty and (several or not draft.is_controller):
        draft.fault("node.id", "each node of a cluster needs a number of its own")


def _resolve_listeners(draft: Draft) -> None:
    """Set each listener's security protocol; without listeners, add the defaults of a single node."""
    names = draft.get("controller_listener_names")
    listeners: tuple[Listener, ...] = draft.get("listeners")
    if "listeners" not in draft.given:
        first = Listener(names[0], "", 9093) if names else listeners[1]
        listeners = tuple(
            each
            for each, role in ((listeners[0], "broker"), (first, "controller"))
            if role in draft.get("roles")
        )
    ports = [(each.host, each.port) for each in listeners if each.port]
    if len(set(ports)) != len(ports):
        draft.fault("listeners", "two listeners share a port")
    draft.values["listeners"] = tuple(_with_protocol(draft, each) for each in listeners)


def _with_protocol(draft: Draft, listener: Listener) -> Listener:
    protocols = draft.get("listener_security_protocol_map")
    known = protocols.get(listener.name)
    if known is None and listener.name in draft.get("controller_listener_names"):
        known = "PLAINTEXT"
    if (
        known is None
        and "listener.security.protocol.map" not in draft.given
        and listener.name in SECURITY_PROTOCOLS
    ):
        known = listener.name
    if known is None:
        draft.fault("listener.security.protocol.map", f"lacks listener {listener.name}")
    elif known in SASL_PROTOCOLS and listener.name in draft.get("controller_listener_names"):
        draft.fault("listeners", f"listener {listener.name} is set to {known}, but {NO_LOGINS}")
    return listener._replace(security_protocol=known or "PLAINTEXT")


def _judge_controller_listeners(draft: Draft) -> None:
    names = draft.get("controller_listener_names")
    have = {each.name for each in draft.get("listeners")}
    if not names:
        draft.fault("controller.listener.names", "must name at least one listener")
    elif draft.is_controller and names[0] not in have:
        draft.fault(
            "listeners", f"lacks {names[0]}, which controller.listener.names names; add {names[0]}://:9093"
        )
    elif not draft.is_controller and have & set(names):
        draft.fault("listeners", f"{names[0]} is a controllers' listener, but this node is only a broker")
    if draft.is_broker and not have - set(names):
        draft.fault("listeners", "a broker needs a listener besides the controller's; add PLAINTEXT://:9092")


def _judge_protocols(draft: Draft) -> None:
    """Refuse logins for controllers elsewhere, as `_with_protocol` does for this node's own."""
    have = {each.name for each in draft.get("listeners")}
    for name in draft.get("controller_listener_names"):
        protocol = draft.get("listener_security_protocol_map").get(name, "PLAINTEXT")
        if name not in have and protocol in SASL_PROTOCOLS:
            draft.fault(
                "listener.security.protocol.map",
                f"sets {protocol} for controllers ({name}), but {NO_LOGINS}",
            )


def _resolve_logins(draft: Draft) -> None:
    """Set the logins of each SASL listener; an override must name an existing listener."""
    sasl = [each.name for each in draft.get("listeners") if each.security_protocol in SASL_PROTOCOLS]
    for name in draft.overrides:
        override = split_override(name)
        if override is not None and override.listener not in sasl:
            draft.fault(name, f"there is no SASL listener {override.listener}")
    if draft.get("authorizer_class_name") and not draft.get("super_users"):
        draft.warn("super_users_missing", consequence="only users with that right may change ACLs")
    if "sasl.enabled.mechanisms" in draft.faulty or not draft.is_broker:
        return
    draft.values["logins"] = MappingProxyType(
        {
            name: logins_of(
                name,
                draft.overrides,
                mechanisms=draft.get("sasl_enabled_mechanisms"),
                max_reauth_ms=draft.get("connections_max_reauth_ms"),
                fault=draft.fault,
            )
            for name in sasl
        }
    )


def _resolve_oauth(draft: Draft) -> None:
    """Record the keys and tokens of each listener with OAUTHBEARER."""
    logins = draft.values.get("logins")
    if logins is None:  # no broker, or a reported fault
        return
    offering = [name for name, login in logins.items() if OAUTHBEARER in login.mechanisms]
    for name in draft.overrides:
        override = split_oauth_override(name)
        if override is not None and override.listener not in offering:
            draft.fault(name, f"is about security, but no listener {override.listener} offers {OAUTHBEARER}")
    of_all = settings_of(OauthSettings)
    for name in sorted(draft.given & of_all.keys()) if not offering else ():
        attribute, row = of_all[name]
        if draft.get(attribute) and draft.get(attribute) != row.default:
            draft.fault(name, f"is about security, but no listener offers {OAUTHBEARER}; else leave it out")
    if draft.faulty & of_all.keys():
        return
    made = {name: oauth_of(name, draft.overrides, draft.get, draft.fault) for name in offering}
    draft.values["oauth"] = MappingProxyType(made)
    for each in made.values():
        url = each.oauth_jwks_url
        if url and each.jwks_path is None and url not in draft.get("oauth_allowed_urls"):
            rule = (
                f"is an address that {ALLOWED_URLS} does not name; add {url} there if keys may come from it"
            )
            draft.fault(each.names["oauth_jwks_url"], rule)
        if keys_in_the_clear(each):
            draft.warn(
                "keys_fetched_in_the_clear",
                url=url,
                consequence="whoever is on the way can send keys of their own, and log in as anyone",
            )


def _resolve_tls(draft: Draft) -> None:
    """Record the TLS settings of each TLS listener: this node's, and the settings for controllers elsewhere."""
    own = {each.name: each.security_protocol for each in draft.get("listeners")}
    controllers = draft.get("controller_listener_names")[:1]
    of_controllers = {each: draft.get("listener_security_protocol_map").get(each) for each in controllers}
    speaking = [name for name, protocol in (of_controllers | own).items() if protocol in TLS_PROTOCOLS]
    if _admin_speaks_tls(draft):
        speaking.append(ADMIN_LISTENER)
    for name in draft.overrides:
        override = split_tls_override(name)
        if override is None or override.listener in speaking:
            continue
        if override.listener == ADMIN_LISTENER:
            draft.fault(name, "needs raftlog.admin.security.protocol=SSL")
        else:
            draft.fault(name, f"is about security, but no listener {override.listener} has SSL or SASL_SSL")
    of_all = settings_of(TlsSettings)
    for name in sorted(draft.given & of_all.keys()) if not speaking else ():
        attribute, row = of_all[name]
        if draft.get(attribute) and draft.get(attribute) != row.default:
            draft.fault(name, "is about security, but no listener has SSL or SASL_SSL; else leave it out")
    if draft.faulty & of_all.keys():
        return
    certificate = draft.get("admin_ssl_certificate")
    overrides = {**(of_certificate_file(certificate) if certificate else {}), **draft.overrides}
    tls = {
        name: tls_of(name, overrides, draft.get, draft.fault, listens=name in own or name == ADMIN_LISTENER)
        for name in speaking
    }
    admin = tls.pop(ADMIN_LISTENER, None)
    if admin is not None and certificate:
        names = {**admin.names, "ssl_keystore_location": "raftlog.admin.ssl.certificate"}
        admin = replace(admin, names=names, key_file=draft.get("admin_ssl_key"))
    draft.values["admin_tls"] = admin
    draft.values["tls"] = MappingProxyType(tls)


def _admin_speaks_tls(draft: Draft) -> bool:
    """Return whether the HTTP admin API uses TLS, for which a certificate of its own suffices."""
    protocol = "raftlog.admin.security.protocol"
    if draft.get("admin_ssl_certificate"):
        if protocol in draft.given and draft.get("admin_security_protocol") != "SSL":
            draft.fault(protocol, "must be SSL, since raftlog.admin.ssl.certificate is set")
        draft.values["admin_security_protocol"] = "SSL"
    speaks: bool = draft.get("admin_security_protocol") == "SSL"
    return speaks


def _resolve_limits(draft: Draft) -> None:
    """Record the connection limits of single listeners."""
    names = {each.name for each in draft.get("listeners")}
    for name in draft.overrides:
        override = split_limit_override(name)
        if override is not None and override[0] not in names:
            draft.fault(name, f"there is no listener {override[0]}")
    draft.values["listener_limits"] = limits_of_listeners(draft.overrides, draft.fault)


def _broker_listeners(draft: Draft) -> tuple[Listener, ...]:
    names = draft.get("controller_listener_names")
    return tuple(each for each in draft.get("listeners") if each.name not in names)


def _resolve_advertised(draft: Draft, hostname: str) -> None:
    """Advertise every broker listener; by default its bound address, or this host's name."""
    bound = {each.name: each for each in _broker_listeners(draft)}
    controllers = set(draft.get("controller_listener_names"))
    said = (
        {each.name: each for each in draft.get("advertised_listeners")}
        if "advertised.listeners" in draft.given
        else {}
    )
    for name in sorted(set(said) - set(bound) - controllers):
        draft.fault("advertised.listeners", f"advertises {name}, which listeners does not have")
    advertised = []
    for name, listener in bound.items():
        if name in said:
            advertised.append(said[name]._replace(security_protocol=listener.security_protocol))
            _judge_advertised(draft, said[name], listener)
        elif said:
            continue
        else:
            host = hostname if listener.host in EVERY_INTERFACE else listener.host
            advertised.append(listener._replace(host=host))
    if draft.is_broker and said and not advertised and bound:
        draft.fault("advertised.listeners", "advertises none of the broker's listeners")
    draft.values["advertised_listeners"] = tuple(advertised)


def _judge_advertised(draft: Draft, advertised: Listener, bound: Listener) -> None:
    """Report addresses to which no client, or no client on another machine, can connect."""
    reason = None
    if advertised.host in EVERY_INTERFACE:
        reason = "this host means every interface, so clients cannot connect to it"
    elif advertised.port == 0 and bound.port:
        reason = "port 0 means any free port, so clients cannot connect to it"
    elif is_loopback(advertised.host) and not is_loopback(bound.host):
        reason = "clients on other machines will connect to themselves"
    elif not is_loopback(advertised.host) and is_loopback(bound.host):
        reason = "the listener accepts connections from this machine only"
    if reason:
        draft.warn(
            "advertised_listener_unreachable", advertised=str(advertised), listener=str(bound), reason=reason
        )


def _resolve_inter_broker_listener(draft: Draft) -> None:
    listeners = _broker_listeners(draft)
    name = draft.get("inter_broker_listener_name")
    if not draft.is_broker:
        return
    if name is not None:
        if name.upper() not in {each.name for each in draft.get("advertised_listeners")}:
            draft.fault(
                "inter.broker.listener.name", f"{name} is not among the broker's advertised listeners"
            )
        draft.values["inter_broker_listener_name"] = name.upper()
        return
    wanted = draft.get("security_inter_broker_protocol")
    matching = [each for each in listeners if each.security_protocol == wanted]
    if listeners:
        draft.values["inter_broker_listener_name"] = (matching or list(listeners))[0].name


def _resolve_voters(draft: Draft, hostname: str) -> bool:
    """Without voters a node is alone; settings that imply several voters are a fault (and False)."""
    if "controller.quorum.voters" in draft.given and draft.get("voters"):
        return True
    node_id, servers = draft.get("node_id"), draft.get("controller_quorum_bootstrap_servers")
    wanted = ",".join(f"ID@{server}" for server in servers) or "ID@HOST:PORT,..."
    own = next(
        (each for each in draft.get("listeners") if each.name in draft.get("controller_listener_names")), None
    )
    if own is None and draft.is_controller:
        return False  # reported already: listeners lacks the controller's
    if len(servers) > 1 or own is None:
        draft.fault(
            "controller.quorum.voters",
            f"is missing; raftlog needs the voters' ids: add controller.quorum.voters={wanted} on every node",
        )
        return False
    host, port = parse_address(servers[0]) if servers else ("localhost", own.port)
    named = {own.host, hostname, *(each.host for each in draft.get("advertised_listeners"))}
    if servers and (port != own.port or not (is_loopback(host) or host in named)):
        draft.fault(
            "controller.quorum.voters",
            f"is missing, and {servers[0]} is another node: add controller.quorum.voters=ID@{servers[0]},"
            f"{node_id}@HOST:{own.port} on every node, with that node's node.id and this node's host",
        )
        return False
    draft.values["voters"] = MappingProxyType({node_id: (host, port)})
    return True


def _judge_voters(draft: Draft) -> None:
    voters = draft.get("voters")
    node_id = draft.get("node_id")
    if draft.is_controller and node_id not in voters:
        draft.warn(
            "controller_is_observer",
            node_id=node_id,
            reason="controller.quorum.voters lacks it",
            advice="`raftlog quorum add` makes it a voter; set process.roles=broker if it is not to vote",
        )
    if not draft.is_controller and node_id in voters:
        draft.fault("process.roles", f"node {node_id} is among controller.quorum.voters but is no controller")
    if len(voters) > MAX_VOTERS:
        draft.warn("too_many_voters", voters=len(voters), at_most=MAX_VOTERS)
    if len(voters) % 2 == 0:
        draft.warn("even_number_of_voters", voters=len(voters), survives=(len(voters) - 1) // 2)
    own = next(
        (each for each in draft.get("listeners") if each.name in draft.get("controller_listener_names")), None
    )
    if own and node_id in voters and own.port != voters[node_id][1]:
        draft.warn("controller_port_differs", listener=str(own), voter_port=voters[node_id][1])


def derived_secret(voters: Mapping[int, tuple[str, int]]) -> bytes:
    """Return the cluster secret of a config without one."""
    return hashlib.sha256(f"raftlog cluster secret of {format_voters(voters)}".encode()).digest()


def _resolve_secret(draft: Draft) -> None:
    if "raftlog.cluster.secret" in draft.given:
        return
    draft.values["cluster_secret"] = derived_secret(draft.get("voters"))
    asked_for = (
        "logins" if draft.values.get("logins") else "rules" if draft.get("authorizer_class_name") else ""
    )
    if asked_for:
        draft.fault(
            "raftlog.cluster.secret",
            f"must be set where {asked_for} are: unset, whoever knows the voters passes for a broker, which may do all",
        )
    draft.warn(
        "cluster_secret_missing",
        consequence="anyone who knows the voters can act as a node of the cluster",
        advice="set raftlog.cluster.secret where strangers reach the ports",
    )


def _judge_admin(draft: Draft) -> None:
    """Refuse an HTTP port that others can reach without authentication, or that sends secrets in the clear."""
    if draft.faulty & {"raftlog.admin.tokens.file", "authorizer.class.name"}:
        return
    for name, key in HTTP_LISTENERS:
        address = None if name in draft.faulty else draft.get(key)
        if address is not None and not is_loopback(address[0]):
            _judge_admin_beyond_loopback(draft, name, format_optional_address(address))
    advertised = draft.get("admin_advertised_listener")
    if advertised is not None and (advertised[0] in EVERY_INTERFACE or not advertised[1]):
        draft.fault("raftlog.admin.advertised.listener", "must be a host and a port to connect to")
    if advertised is not None and draft.get("admin_listener") is None:
        draft.fault("raftlog.admin.advertised.listener", "needs raftlog.admin.listener")
    if draft.get("admin_ssl_key") and not draft.get("admin_ssl_certificate"):
        draft.fault("raftlog.admin.ssl.key", "needs raftlog.admin.ssl.certificate")


def _judge_admin_beyond_loopback(draft: Draft, name: str, listener: str) -> None:
    if not (draft.get("admin_tokens_file") or draft.get("authorizer_class_name")):
        draft.fault(
            name,
            "beyond loopback authorizer.class.name (for users) or raftlog.admin.tokens.file must be set, "
            f"but it is {listener!r}",
        )
    elif draft.get("admin_security_protocol") == "SSL":
        return
    elif draft.get("admin_tokens_without_tls"):
        draft.warn(
            "admin_tokens_without_tls",
            listener=listener,
            consequence="whoever is on the way between a client and this node can read tokens and passwords, and use "
            "them",
        )
    else:
        draft.fault(
            name,
            f"beyond loopback tokens and passwords need TLS: set raftlog.admin.security.protocol=SSL, or "
            f"raftlog.admin.tokens.without.tls=true on a trusted network; it is {listener!r}",
        )


def _resolve_folders(draft: Draft, working_dir: str) -> None:
    if draft.get("audit_file"):
        draft.values["audit_file"] = _resolve_path(working_dir, draft.get("audit_file"))
    dirs = draft.get("log_dirs")
    if not dirs:
        draft.fault("log.dirs", "must name at least one folder")
        return
    if len(set(dirs)) != len(dirs):
        draft.fault("log.dirs", "names a folder twice")
    draft.values["log_dirs"] = tuple(_resolve_path(working_dir, each) for each in dirs)
    cordoned = draft.get("cordoned_log_dirs") or ()
    cordoned = tuple(each if each == ALL_DIRS else _resolve_path(working_dir, each) for each in cordoned)
    draft.values["cordoned_log_dirs"] = cordoned
    if unknown := unknown_dirs(cordoned, draft.values["log_dirs"]):
        draft.fault("cordoned.log.dirs", f"names {unknown[0]!r}, which is not one of log.dirs")
    metadata_dir = draft.get("metadata_log_dir") or dirs[0]
    draft.values["metadata_log_dir"] = _resolve_path(working_dir, metadata_dir)


def _resolve_path(folder: str, path: str) -> str:
    """Return a path as seen from a folder, normalised as by pathlib, which takes 770 KB to import."""
    whole = path if path.startswith("/") else f"{folder}/{path}"
    parts = "/".join(each for each in whole.split("/") if each not in ("", "."))
    return f"/{parts}" if whole.startswith("/") else parts or "."


_AT_MOST = (
    # (smaller, factor, larger): smaller * factor ≤ larger
    ("broker.heartbeat.interval.ms", 2, "broker.session.timeout.ms"),
    ("replica.fetch.wait.max.ms", 1, "replica.lag.time.max.ms"),
    ("replica.fetch.wait.max.ms", 1, "replica.socket.timeout.ms"),
    ("group.min.session.timeout.ms", 1, "group.max.session.timeout.ms"),
    ("group.consumer.heartbeat.interval.ms", 1, "group.consumer.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", 1, "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", 1, "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.min.session.timeout.ms", 1, "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", 1, "group.consumer.max.session.timeout.ms"),
    ("group.share.heartbeat.interval.ms", 1, "group.share.session.timeout.ms"),
    ("group.share.min.heartbeat.interval.ms", 1, "group.share.heartbeat.interval.ms"),
    ("group.share.heartbeat.interval.ms", 1, "group.share.max.heartbeat.interval.ms"),
    ("group.share.min.session.timeout.ms", 1, "group.share.session.timeout.ms"),
    ("group.share.session.timeout.ms", 1, "group.share.max.session.timeout.ms"),
    ("group.share.min.record.lock.duration.ms", 1, "group.share.record.lock.duration.ms"),
    ("group.share.record.lock.duration.ms", 1, "group.share.max.record.lock.duration.ms"),
    ("group.share.min.delivery.count.limit", 1, "group.share.delivery.count.limit"),
    ("group.share.delivery.count.limit", 1, "group.share.max.delivery.count.limit"),
    ("group.share.min.partition.max.record.locks", 1, "group.share.partition.max.record.locks"),
    ("group.share.partition.max.record.locks", 1, "group.share.max.partition.max.record.locks"),
    ("message.max.bytes", 1, "socket.request.max.bytes"),
)


def _judge_relations(draft: Draft) -> None:
    table = settings_of(NodeConfig)
    for smaller, factor, larger in _AT_MOST:
        low, high = draft.get(table[smaller][0]), draft.get(table[larger][0])
        if low * factor > high:
            times = f"{factor} times " if factor > 1 else ""
            blamed = smaller if smaller in draft.given else larger
            draft.fault(blamed, f"{times}{smaller} ({low}) must be at most {larger} ({high})")
