"""A world inside one thread: virtual time, seeded hosts, links and disks. The same seed gives the same trace.

`simulate(program, seed=7)` runs a plain asyncio program; hosts made with `loop.host("a")` run node code
unchanged.
"""

from raftlog.proof.simulator.disk import SimDisk
from raftlog.proof.simulator.env import SimEnv
from raftlog.proof.simulator.hosts import Host
from raftlog.proof.simulator.loop import Run, SimLoop, SimulationFailed, SimulationStalled, simulate

__all__ = ["Host", "Run", "SimDisk", "SimEnv", "SimLoop", "SimulationFailed", "SimulationStalled", "simulate"]
