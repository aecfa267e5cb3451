"""A world inside one thread: virtual time, seeded hosts, links and disks. The same seed gives the same trace.

`simulate(program, seed=7)` runs a plain asyncio program; hosts made with `loop.host("a")` run node code
unchanged.
"""

from raftlog_chaos.simulator.disk import SimDisk
from raftlog_chaos.simulator.env import SimEnv
from raftlog_chaos.simulator.hosts import Host
from raftlog_chaos.simulator.loop import Run, SimLoop, SimulationFailed, SimulationStalled, simulate

__all__ = ["Host", "Run", "SimDisk", "SimEnv", "SimLoop", "SimulationFailed", "SimulationStalled", "simulate"]
