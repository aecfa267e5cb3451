"""A network of one run: a switch that this process can be connected to, and a host for each node, in namespaces.

- The switch is a bridge in a namespace of the run. Each node's namespace is connected to it by a veth pair.
- Nodes have the addresses 10.77.0.<node>, and clients 10.77.0.254. These exist in the namespaces only.
- To cut a link, nftables silently drops packets from the source in the target's namespace.
- On a lossy link it drops a share of the packets, and TCP sends them again.
- A link is slow by netem at the source, if the kernel has it: that is tried once. Without it, a process holds the
  packets back (`delay_link`).

It needs Linux, CAP_SYS_ADMIN (root, or a user namespace with a network of its own), `ip` and `nft`.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final

from raftlog.testing.delay_link import DelayLink, can_carry
from raftlog.testing.hosts import Addresses
from raftlog.testing.netns import Namespace

NETWORK: Final = "10.77.0."
CLIENTS: Final = 254
PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
ADMIN_PORT: Final = 9644
TOOLS: Final = {"ip": "iproute2", "nft": "nftables"}
LOSS_STEPS: Final = 10_000
"""The loss of a link is rounded to one part in so many."""

RULES: Final = """
add table ip raftlog
add set ip raftlog cut { type ipv4_addr; }
add chain ip raftlog lossy
add chain ip raftlog input { type filter hook input priority 0; }
add rule ip raftlog input ip saddr @cut drop
add rule ip raftlog input jump lossy
"""


class Network:
    """A switch, and a host for each of nodes 1 to n. Raise OSError with the missing requirement.

    The `Hosts` of a cluster: its nodes are started in their namespaces.
    """

    def __init__(self, nodes: int) -> None:
        self.addresses = {
            node_id: Addresses(f"{NETWORK}{node_id}", PORT, CONTROLLER_PORT, ADMIN_PORT)
            for node_id in range(1, nodes + 1)
        }
        self._links: dict[tuple[int, int], tuple[float, float]] = {}
        """(source, target) -> (delay in s, loss) of the links that are not as they should be."""
        self._namespaces: list[Namespace] = []
        self._delays: dict[tuple[int, int], tuple[float, DelayLink]] = {}
        """(source, target) -> the delay of a slow link, and the link, where netem is missing."""
        try:
            _check_tools()
            self.outside = self._keep(Namespace(of_this_thread=True))
            self.outside.enter()  # to know early whether there is a way back
            self.switch = self._keep(Namespace())
            self.hosts = {node_id: self._keep(Namespace()) for node_id in self.addresses}
            self._connect()
        except OSError as error:
            self.release()
            raise OSError(_reason(error)) from error

    def _keep(self, namespace: Namespace) -> Namespace:
        self._namespaces.append(namespace)
        return namespace

    def _connect(self) -> None:
        lines = ["link set lo up", "link add switch type bridge"]
        lines += [f"addr add {NETWORK}{CLIENTS}/24 dev switch", "link set switch up"]
        for node_id, host in self.hosts.items():
            lines.append(f"link add node-{node_id} type veth peer name eth0 netns {host.path}")
            lines.append(f"link set node-{node_id} master switch up")
        self.switch.run(["ip", "-batch", "-"], "\n".join(lines) + "\n")
        for node_id, host in self.hosts.items():
            lines = ["link set lo up", f"addr add {NETWORK}{node_id}/24 dev eth0", "link set eth0 up"]
            host.run(["ip", "-batch", "-"], "\n".join(lines) + "\n")
            host.run(["nft", "-f", "-"], RULES)

    def inside(self, node_id: int) -> AbstractContextManager[None]:
        """Return a context in which this thread starts processes on that node's host."""
        return self.hosts[node_id].inside()

    def cut(self, source: int, target: int) -> None:
        """Drop what comes from source, at target."""
        self.hosts[target].run(["nft", "-f", "-"], f"add element ip raftlog cut {{ {NETWORK}{source} }}")

    def slow(self, source: int, target: int, *, delay_s: float, loss: float) -> None:
        """Set the delay and the loss of a link."""
        self._links[source, target] = (delay_s, loss)
        self._set_losses(target)
        self._set_delays(source)

    def heal(self) -> None:
        """Let every link be as it should."""
        self._close_delays()
        slow = {source for (source, _), (delay_s, _) in self._links.items() if delay_s}
        self._links.clear()
        for host in self.hosts.values():
            host.run(["nft", "-f", "-"], "flush set ip raftlog cut\nflush chain ip raftlog lossy\n")
        for source in slow:
            self._set_delays(source)

    def _set_losses(self, target: int) -> None:
        lines = ["flush chain ip raftlog lossy"]
        for (source, towards), (_, loss) in self._links.items():
            if towards == target and loss:
                share = f"numgen random mod {LOSS_STEPS} < {round(loss * LOSS_STEPS)}"
                lines.append(f"add rule ip raftlog lossy ip saddr {NETWORK}{source} {share} drop")
        self.hosts[target].run(["nft", "-f", "-"], "\n".join(lines) + "\n")

    def _set_delays(self, source: int) -> None:
        delays = {
            target: delay_s
            for (origin, target), (delay_s, _) in self._links.items()
            if origin == source and delay_s
        }
        if has_netem():
            _set_delays(self.hosts[source], delays)
        elif can_carry():
            self._carry(source, delays)

    def _carry(self, source: int, delays: Mapping[int, float]) -> None:
        for target in self.hosts:
            delay_s, link = self._delays.get((source, target), (0.0, None))
            if delays.get(target, 0.0) == delay_s:
                continue
            if link is not None:
                del self._delays[source, target]
                link.close()
            if target in delays:
                self._delays[source, target] = (
                    delays[target],
                    self._delay_link(source, target, delays[target]),
                )

    def _delay_link(self, source: int, target: int, delay_s: float) -> DelayLink:
        return DelayLink(
            self.hosts[source],
            self.hosts[target],
            addresses=(f"{NETWORK}{source}", f"{NETWORK}{target}"),
            name=f"-{source}-{target}",
            delay_s=delay_s,
        )

    def _close_delays(self) -> None:
        while self._delays:
            self._delays.popitem()[1][1].close()

    def bytes_between(self) -> dict[tuple[int, int], int]:
        """Return what each slow link has carried so far, as (source, target) -> bytes; none with netem."""
        return {pair: link.carried.size for pair, (_, link) in self._delays.items()}

    def release(self) -> None:
        """Let go of all namespaces: they are gone once no node runs in them."""
        self._close_delays()
        for namespace in self._namespaces:
            namespace.close()


def _set_delays(host: Namespace, delays: Mapping[int, float], device: str = "eth0") -> None:
    """Let what leaves a host for these nodes be late by so many seconds; the rest is in time."""
    lines = [f"qdisc replace dev {device} root pfifo"]
    if delays:
        lines = [f"qdisc replace dev {device} root handle 1: prio bands 16 priomap {'0 ' * 16}"]
    for band, (target, delay_s) in enumerate(delays.items(), start=2):
        match = f"u32 match ip dst {NETWORK}{target}/32"
        lines.append(f"qdisc add dev {device} parent 1:{band:x} netem delay {delay_s * 1e3:g}ms limit 100000")
        lines.append(f"filter add dev {device} parent 1: protocol ip prio {band} {match} flowid 1:{band:x}")
    host.run(["tc", "-batch", "-"], "\n".join(lines) + "\n")


def can_delay() -> bool:
    """Return whether links can be slow here."""
    return has_netem() or can_carry()


@functools.cache
def has_netem() -> bool:
    """Return whether this kernel has netem, by trying it in an unused namespace."""
    try:
        trial = Namespace()
    except OSError:
        return False
    try:
        lines = [
            "qdisc replace dev lo root handle 1: prio bands 16",
            "qdisc add dev lo parent 1:2 netem delay 1ms",
        ]
        lines.append(f"filter add dev lo parent 1: protocol ip u32 match ip dst {NETWORK}1/32 flowid 1:2")
        trial.run(["tc", "-batch", "-"], "\n".join(lines) + "\n")
    except OSError:
        return False
    finally:
        trial.close()
    return True


def _check_tools() -> None:
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            raise FileNotFoundError(f"{tool} is missing (package {package})")


def _reason(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "network namespaces need root; without it: unshare -Urn raftlog chaos ..."
    return f"no network namespaces here: {error.strerror or error}"
