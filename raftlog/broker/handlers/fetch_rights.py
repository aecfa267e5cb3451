"""The sender of a fetch, and whether it still may read when the response leaves.

A fetch checks ACLs as it reads, and may then wait for records, for a disk or for other turns of the loop. ACLs change
meanwhile, and a partition without news is not read at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raftlog.base.errors import TopicAuthorizationFailed
from raftlog.broker.network.fetch_sessions import FetchSession
from raftlog.broker.rights import TOPIC, note_refusal, refused_topic
from raftlog.protocol.fetch import FetchRequest
from raftlog.replication.replica_host import PartitionRead, ReplicaId
from raftlog.security.acls import Operation

if TYPE_CHECKING:
    from raftlog.broker.network.connection import Connection

REFUSED: Final = PartitionRead(TopicAuthorizationFailed.code, -1, -1, -1, b"", aborted=())


def take_back(connection: Connection, session: FetchSession) -> None:
    """Refuse the partitions that the client may not read any more, if ACLs have changed since the last check."""
    rules = connection.server.broker.image().acls
    if session.rules is rules:
        return
    session.rules = rules
    image, denied = connection.server.broker.image(), set()
    for entry in session.entries.values():
        if entry.image is None or entry.image is image:
            continue  # it is refused already, or was checked by these ACLs
        name = refused_topic(connection, Operation.READ, entry.topic)
        if name is not None:
            session.attach(entry, None)
            entry.image, entry.dry, entry.read = None, False, REFUSED
            session.ready[entry] = None
            denied.add(name)
    if denied:
        note_refusal(connection, Operation.READ, TOPIC, denied)


def replica_of(connection: Connection, request: FetchRequest) -> ReplicaId:
    """Return the id of the replica that fetches.

    Raises TopicAuthorizationFailed for a client that only claims to be a replica.
    """
    peer = connection.peer
    if peer is None or not connection.is_follower or peer.broker_id != request.replica_id:
        raise TopicAuthorizationFailed()
    if request.replica_epoch >= 0 and request.replica_epoch != peer.broker_epoch:
        raise TopicAuthorizationFailed()
    return peer
