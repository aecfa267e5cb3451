"""What may befall a cluster, a file each; the names hold in Python, on the command line, over HTTP and in suites."""

from raftlog.proof.faults.blackout import Blackout
from raftlog.proof.faults.clock_jump import ClockJump
from raftlog.proof.faults.cut_one_way import CutOneWay
from raftlog.proof.faults.cut_pair import CutPair
from raftlog.proof.faults.failing_disk import FailingDisk
from raftlog.proof.faults.fault import Fault
from raftlog.proof.faults.flip_bit import FlipBit
from raftlog.proof.faults.full_disk import FullDisk
from raftlog.proof.faults.isolate_controller import IsolateController
from raftlog.proof.faults.isolate_coordinator import IsolateCoordinator
from raftlog.proof.faults.isolate_leader import IsolateLeader
from raftlog.proof.faults.isolate_one import IsolateOne
from raftlog.proof.faults.kill import Kill
from raftlog.proof.faults.kill_controller import KillController
from raftlog.proof.faults.kill_coordinator import KillCoordinator
from raftlog.proof.faults.kill_leader import KillLeader
from raftlog.proof.faults.lossy_link import LossyLink
from raftlog.proof.faults.majorities_ring import MajoritiesRing
from raftlog.proof.faults.pause import Pause
from raftlog.proof.faults.pause_coordinator import PauseCoordinator
from raftlog.proof.faults.pause_leader import PauseLeader
from raftlog.proof.faults.power_cut import PowerCut
from raftlog.proof.faults.restart_all import RestartAll
from raftlog.proof.faults.slow_disk import SlowDisk
from raftlog.proof.faults.slow_follower import SlowFollower
from raftlog.proof.faults.slow_link import SlowLink
from raftlog.proof.faults.terminate import Terminate
from raftlog.proof.faults.wipe_follower import WipeFollower

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
