"""The faults of nodes, links and disks that testbeds can inject. Their names are the same in Python, on the command
line, over HTTP and in suites.
"""

from raftlog_chaos.faults.disks import FailingDisk, FlipBit, FullDisk, OutOfFiles, SlowDisk, SlowFollower
from raftlog_chaos.faults.fault import Fault
from raftlog_chaos.faults.links import (
    CutFromCoordinator,
    CutOneWay,
    CutPair,
    IsolateController,
    IsolateCoordinator,
    IsolateLeader,
    IsolateOne,
    LossyLink,
    MajoritiesRing,
    SlowLink,
)
from raftlog_chaos.faults.nodes import (
    Blackout,
    ClockJump,
    CloneNode,
    Kill,
    KillController,
    KillCoordinator,
    KillLeader,
    KillSchemaLeader,
    LogTrouble,
    LoseIdentity,
    Pause,
    PauseCoordinator,
    PauseLeader,
    PauseSchemaLeader,
    PowerCut,
    RestartAll,
    RollBackFollower,
    SafeRestarts,
    Terminate,
    WipeFollower,
    WrongStart,
    WrongStarts,
)

FAULTS: dict[str, type[Fault]] = {
    each.name: each
    for each in (
        Kill,
        KillLeader,
        KillController,
        KillCoordinator,
        KillSchemaLeader,
        PowerCut,
        Blackout,
        RestartAll,
        Terminate,
        SafeRestarts,
        Pause,
        PauseLeader,
        PauseCoordinator,
        PauseSchemaLeader,
        CutPair,
        CutFromCoordinator,
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
        RollBackFollower,
        LoseIdentity,
        CloneNode,
        ClockJump,
        OutOfFiles,
        LogTrouble,
        WrongStart,
        WrongStarts,
    )
}
"""Every fault by its name."""
