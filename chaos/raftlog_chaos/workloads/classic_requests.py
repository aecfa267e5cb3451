"""The requests of a single member of a classic group, as handwritten clients send them to their coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from raftlog_chaos.workloads.raw_client import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, shapes


class ClassicMember(NamedTuple):
    """A member's identity, with its only protocol."""

    group_id: str
    member_id: str
    protocol_type: str
    protocol: str
    instance: str | None = None

    def join(self, metadata: bytes, *, session_ms: int, rebalance_ms: int) -> Any:
        make = shapes(JOIN_GROUP)
        return make.JoinGroupRequest(
            group_id=self.group_id,
            session_timeout=session_ms,
            rebalance_timeout=rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=(make.JoinGroupRequestProtocol(name=self.protocol, metadata=metadata),),
        )

    def sync(self, generation: int, assignments: Mapping[str, bytes]) -> Any:
        """Return a SyncGroup request. `assignments` by member id: only the leader sends them."""
        make = shapes(SYNC_GROUP)
        return make.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignments=tuple(
                make.SyncGroupRequestAssignment(member_id=each, assignment=share)
                for each, share in assignments.items()
            ),
        )

    def heartbeat(self, generation: int) -> Any:
        return shapes(HEARTBEAT).HeartbeatRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )

    def leave(self) -> Any:
        make = shapes(LEAVE_GROUP)
        me = make.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        return make.LeaveGroupRequest(group_id=self.group_id, members=(me,))
