"""The part of `raftlog doctor` that looks at the network: ports, advertised addresses, other voters, clocks."""

from __future__ import annotations

import errno
import http.client
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

from raftlog.base.config import NodeConfig
from raftlog.base.config.network import Listener, find_listener, format_address, is_loopback
from raftlog.cli.dev_nodes import is_node
from raftlog.cli.doctor.findings import Finding, mend, note, ok
from raftlog.cli.doctor.machine import is_running

TIMEOUT_S: Final = 1.0
CLOCKS_APART_S: Final = 5.0
LISTENING: Final = "0A"
"""The state of a socket in /proc/net/tcp."""

Address = tuple[str, int]


def check_ports(node: NodeConfig) -> Iterator[Finding]:
    """Check that the node can listen, or find what uses its ports."""
    addresses = {str(each): (each.host, each.port) for each in node.listeners}
    if node.admin_listener is not None:
        addresses["admin API"] = node.admin_listener
    if node.schema_registry_listener is not None:
        addresses["schema registry"] = node.schema_registry_listener
    runs = is_running(node)
    for name, (host, port) in addresses.items():
        if port:
            yield _check_port(name, host, port, runs=runs)


def _check_port(name: str, host: str, port: int, *, runs: bool) -> Finding:
    about = f"port {port}"
    try:
        passive = socket.AI_PASSIVE  # no host is every interface
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=passive)
        family, _, _, _, address = found[0]
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1)
    except (socket.gaierror, UnicodeError):
        return mend(
            about, f"{name}: {host} cannot be resolved", "name an address of this machine in listeners"
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return _taken(about, name, port, runs=runs)
        if error.errno == errno.EADDRNOTAVAIL:
            return mend(
                about, f"{name}: {host} is no address of this machine", "name one that is in listeners"
            )
        return mend(
            about, f"{name}: {error.strerror}", "ports below 1024 need root: choose another in listeners"
        )
    return ok(about, f"{name} is free")


def _taken(about: str, name: str, port: int, *, runs: bool) -> Finding:
    holder = holder_of(port)
    whose = f"held by process {holder[0]} ({holder[1]})" if holder else "held by a process of another user"
    if runs:
        return ok(about, f"{name} is {whose}; this node runs")
    if holder and is_node(holder[0]):
        advice = "`raftlog dev stop` ends it; or choose another port in listeners"
        return mend(about, f"{name} is held by a node of `raftlog dev`", advice)
    return mend(about, f"{name} is {whose}", "end that process, or choose another port in listeners")


def holder_of(port: int) -> tuple[int, str] | None:
    """Return the id and name of the process that listens on a port; None if this user may not know."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(_opened(each) in inodes for each in (process / "fd").iterdir()):
                name = (process / "comm").read_text().strip()
                return int(process.name), name
    return None


def _opened(descriptor: Path) -> str:
    """Return what a descriptor is of; "" if it was closed meanwhile, as that of the listing always is."""
    try:
        return os.readlink(descriptor)
    except OSError:
        return ""


def check_advertised(node: NodeConfig) -> Iterator[Finding]:
    """Check that clients and other nodes can find the advertised addresses."""
    several = len(node.voters) > 1 and any(not is_loopback(host) for host, _ in node.voters.values())
    for each in node.advertised_listeners:
        yield _check_address(each, reached=is_running(node), several=several)


def _check_address(listener: Listener, *, reached: bool, several: bool) -> Finding:
    about = f"advertised {listener}"
    advice = "set advertised.listeners to a name or address that clients reach"
    found = _resolve(listener.host, listener.port)
    if not found:
        return mend(about, f"{listener.host} cannot be resolved", advice)
    if several and all(is_loopback(host) for host, _ in found):
        return mend(about, "it is loopback, so nodes and clients elsewhere connect to themselves", advice)
    if reached:
        if _connects(found):
            return ok(about, "it is reached from here")
        return mend(about, "the node runs, but there is no answer at that address", advice)
    if not any(_is_own(host) for host, _ in found):
        where = ", ".join(host for host, _ in found)
        return note(about, f"{where} is no address of this machine", "see that it is forwarded to this node")
    return ok(about, f"it is {found[0][0]}, an address of this machine")


def _resolve(host: str, port: int) -> list[Address]:
    with suppress(socket.gaierror, UnicodeError):
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys((str(each[4][0]), port) for each in found))
    return []


def _connects(addresses: list[Address]) -> bool:
    for address in addresses:
        with suppress(OSError), socket.create_connection(address, timeout=TIMEOUT_S):
            return True
    return False


def _is_own(host: str) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return True
    return False


def check_quorum(node: NodeConfig) -> Iterator[Finding]:
    """Check that enough other voters answer for a majority, and that this voter is at its configured address."""
    own = node.voters.get(node.node_id)
    listener = find_listener(node.listeners, node.controller_listener_names)
    if own is not None and listener is not None and listener.port not in (0, own[1]):
        yield mend(
            "quorum",
            f"the voters look for this node at port {own[1]}, but it listens on {listener}",
            "set the same port in controller.quorum.voters and listeners",
        )
    others = {each: address for each, address in node.voters.items() if each != node.node_id}
    silent = []
    for node_id, (host, port) in sorted(others.items()):
        found = _resolve(host, port)
        if not found:
            yield mend(
                "quorum",
                f"voter {node_id}: {host} cannot be resolved",
                "correct controller.quorum.voters, or DNS",
            )
        if not _connects(found):
            silent.append(f"{node_id} ({format_address(host, port)})")
    yield _judge_quorum(len(node.voters), silent)


def _judge_quorum(voters: int, silent: list[str]) -> Finding:
    majority = voters // 2 + 1
    if not silent:
        return ok(
            "quorum", "this is the only voter" if voters == 1 else f"all {voters} voters can be reached"
        )
    sentence = f"no answer from voters {', '.join(silent)}; {majority} of {voters} must run"
    advice = "start them, or open their ports in the firewall"
    return (mend if voters - len(silent) < majority else note)("quorum", sentence, advice)


def check_peers_clocks(node: NodeConfig) -> Iterator[Finding]:
    """Compare the clock with other voters' clocks, if their HTTP APIs are at the same port as this node's."""
    if node.admin_listener is None:
        return
    for node_id, (host, _) in sorted(node.voters.items()):
        if node_id == node.node_id or is_loopback(host):
            continue
        apart = _clocks_apart(host, node.admin_listener[1], tls=bool(node.admin_ssl_certificate))
        if apart is None:
            continue
        sentence = (
            f"node {node_id}'s clock is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} this one"
        )
        if abs(apart) > CLOCKS_APART_S:
            yield mend("clock", sentence, "run chrony or systemd-timesyncd on both")
        else:
            yield ok("clock", f"node {node_id}'s clock agrees with this one to {CLOCKS_APART_S:.0f} s")


def _clocks_apart(host: str, port: int, *, tls: bool) -> float | None:
    """Return how many seconds a node's clock is ahead of this machine's, or None if unknown."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # no secret is sent, and the response is not trusted
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
    try:
        connection.request("GET", "/v1/ready")
        date = connection.getresponse().getheader("Date") or ""
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
