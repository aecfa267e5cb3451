"""Settings of a controller as a voter of the metadata quorum. Only the table."""

from __future__ import annotations

from dataclasses import dataclass

from raftlog.base.config.setting import setting


@dataclass(frozen=True, eq=False)
class QuorumSettings:
    """How a controller stands for election, and becomes a voter."""

    controller_quorum_election_timeout_ms: int = setting(
        "controller.quorum.election.timeout.ms",
        "int",
        400,
        "A follower stands for election after this to twice this long without a leader",
        scope="controller",
        at_least=50,
    )
    controller_quorum_auto_join_enable: bool = setting(
        "controller.quorum.auto.join.enable",
        "boolean",
        False,
        "A controller that is no voter makes itself one, once kraft.version is 1",
        scope="node",
    )
