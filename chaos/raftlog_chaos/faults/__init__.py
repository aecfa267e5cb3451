"""The faults that may befall a cluster, a file each; the names hold in Python, on the command line, over HTTP and in
suites.
"""

from raftlog_chaos.faults.blackout import Blackout
from raftlog_chaos.faults.clock_jump import ClockJump
from raftlog_chaos.faults.cut_one_way import CutOneWay
from raftlog_chaos.faults.cut_pair import CutPair
from raftlog_chaos.faults.failing_disk import FailingDisk
from raftlog_chaos.faults.fault import Fault
from raftlog_chaos.faults.flip_bit import FlipBit
from raftlog_chaos.faults.full_disk import FullDisk
from raftlog_chaos.faults.isolate_controller import IsolateController
from raftlog_chaos.faults.isolate_coordinator import IsolateCoordinator
from raftlog_chaos.faults.isolate_leader import IsolateLeader
from raftlog_chaos.faults.isolate_one import IsolateOne
from raftlog_chaos.faults.kill import Kill
from raftlog_chaos.faults.kill_controller import KillController
from raftlog_chaos.faults.kill_coordinator import KillCoordinator
from raftlog_chaos.faults.kill_leader import KillLeader
from raftlog_chaos.faults.lossy_link import LossyLink
from raftlog_chaos.faults.majorities_ring import MajoritiesRing
from raftlog_chaos.faults.pause import Pause
from raftlog_chaos.faults.pause_coordinator import PauseCoordinator
from raftlog_chaos.faults.pause_leader import PauseLeader
from raftlog_chaos.faults.power_cut import PowerCut
from raftlog_chaos.faults.restart_all import RestartAll
from raftlog_chaos.faults.slow_disk import SlowDisk
from raftlog_chaos.faults.slow_follower import SlowFollower
from raftlog_chaos.faults.slow_link import SlowLink
from raftlog_chaos.faults.terminate import Terminate
from raftlog_chaos.faults.wipe_follower import WipeFollower

FAULTS: dict[str, type[Fault]] = {
    each.name: each
    for each in (
        Kill,
        KillLeader,
        KillController,
        KillCoordinator,
        PowerCut,
        Blackout,
        RestartAll,
        Terminate,
        Pause,
        PauseLeader,
        PauseCoordinator,
        CutPair,
        CutOneWay,
        MajoritiesRing,
        IsolateOne,
        IsolateLeader,
        IsolateController,
        IsolateCoordinator,
        SlowLink,
        LossyLink,
        SlowDisk,
        SlowFollower,
        FullDisk,
        FailingDisk,
        FlipBit,
        WipeFollower,
        ClockJump,
    )
}
"""Every fault by its name."""
