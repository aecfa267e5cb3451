"""Log lines of nodes cannot be written, and meanwhile all goes on: topics come and go, nodes die and take over.

Logs describe a node's work. No operation may depend on them, not even the last error handler.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from raftlog_chaos.scenarios.choreography import SERVED_S, Choreography
from raftlog_chaos.scenarios.endurance import RECOVERY_S, TOPIC, Report
from raftlog_chaos.scenarios.extras import Extras
from raftlog_chaos.simulator.cluster import PORT
from raftlog_chaos.simulator.loop import SimLoop

UNKNOWN_API: Final = struct.pack(">ihhih", 10, 9_999, 0, 1, -1)
"""A frame with an unknown API key."""
SETTINGS: Final = {"broker.session.timeout.ms": "9000"}
JUDGED_S: Final = 4.0
"""A broker with a reset connection is fenced within this, long before its session ends, virtual seconds."""
CLOSED_S: Final = 5.0
"""Within this its connection is closed, virtual seconds."""


class LogTrouble(Choreography):
    """A cluster of nodes that fail to write log lines now and then."""

    def trouble(self) -> None:
        """Make the logs of some nodes, or of all, fail for each line or some lines."""
        nodes = sorted(self.cluster.nodes)
        for each in self.chance.sample(nodes, self.chance.randint(1, len(nodes))):
            self.cluster.nodes[each].host.log_failure_rate = self.chance.choice((1.0, 1.0, 0.3))

    def heal_logs(self) -> None:
        """Let all be written again."""
        for each in self.cluster.nodes.values():
            each.host.log_failure_rate = 0.0

    async def be_rude(self) -> None:
        """Send each node an unknown API key: it closes the connection, and logs the reason."""
        for sim_node in self.cluster.running():
            if sim_node.ready:
                await self.loop.host("rude").start(_until_closed(sim_node.host.name))

    def is_fenced(self, node_id: int) -> bool:
        """Return whether the newest metadata has a broker fenced."""
        image = self.cluster.newest_image()
        broker = None if image is None else image.brokers.get(node_id)
        return broker is None or broker.fenced

    async def end_one(self) -> None:
        """End the controller or the partition's leader, by power loss, a signal or a disk failure; others take over."""
        victim = self.chance.choice((self.cluster.leader_id(), await self.leader()))
        if victim is None:
            return
        kind = self.chance.choice(("crash", "vanish", "leave", "disk"))
        if kind == "disk":
            self.cluster.nodes[victim].troubled = True
            self.cluster.nodes[victim].host.disk.fail("sync", under=f"/data/{TOPIC}-{self.partition}")
        elif kind == "leave":
            self.cluster.leave(victim)
        else:
            is_judged = kind == "crash" and victim != self.cluster.leader_id()
            self.cluster.crash(victim, silent=kind == "vanish")
            if is_judged:
                await self.cluster.until(lambda: self.is_fenced(victim), JUDGED_S, "a lost broker is fenced")
        await self.served(3)
        self.cluster.nodes[victim].host.disk.mend()
        if kind == "disk":  # it goes on without the directory, or has ended itself
            self.cluster.crash(victim)
        await self.cluster.until(lambda: not self.cluster.nodes[victim].leaving, SERVED_S, "it has left")
        self.cluster.start(victim)


async def _until_closed(host: str) -> None:
    reader, writer = await asyncio.open_connection(host, PORT)
    writer.write(UNKNOWN_API)
    try:
        async with asyncio.timeout(CLOSED_S):
            while await reader.read(1024):
                continue
    except ConnectionError:
        pass  # with a reset
    finally:
        writer.close()


async def log_trouble(loop: SimLoop, seconds: float = 3.0) -> Report:
    """Fail the logs of nodes while some of them end, for some virtual seconds. Raises AssertionError."""
    scene = LogTrouble(loop, settings=SETTINGS)
    extras = Extras(loop, scene.cluster, scene.history)
    await scene.begin()
    extras.employ_churn()
    end = loop.time() + seconds
    while loop.time() < end:
        await scene.whole()
        scene.trouble()
        await scene.served(3)
        await scene.be_rude()
        await scene.end_one()
        await asyncio.sleep(scene.a_while(0.0, 0.2, 1.0))
        if scene.chance.random() < 0.5:
            scene.heal_logs()
    await scene.whole()
    failed = scene.cluster.effects["line failed"]
    assert failed, "no line failed: nothing was shown"
    await extras.stop()
    recovery_s = await scene.finish()
    await extras.finish(RECOVERY_S)
    faults = scene.judge() + extras.judge()
    assert not faults, "; ".join(faults[:10])
    return scene.report(recovery_s)
