"""The share sessions of a broker: the partitions that members of share groups fetch here (KIP-932).

ShareFetch and ShareAcknowledge count in the same epochs. A session ends with epoch -1 or with its connection; then the
owner gives up the locks of its member. Opening a session again keeps the locks, as in Apache Kafka: the member lost a
response, not its records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from raftlog.base.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)

MAX_EPOCH: Final = 2**31 - 1

MAX_SHARE: Final = 4
"""A session may have at most this part, a fourth, of the partitions of all sessions, as in fetch sessions."""

SharedPartition = tuple[UUID, int]
"""A topic id and a partition."""


class ShareSessionKey(NamedTuple):
    group_id: str
    member_id: str


class ShareSession:
    """One session. `epoch` is that of its next request; `connection` is whatever identifies a connection."""

    __slots__ = ("_partitions", "at_end", "connection", "epoch", "key")

    def __init__(self, key: ShareSessionKey, connection: object) -> None:
        self.key = key
        self.connection = connection
        self.epoch = 1
        self.at_end: Callable[[], None] | None = None
        """Called at the session's end: a request waits that counts on it."""
        self._partitions: dict[SharedPartition, bool] = {}
        """With each, whether the state of its share partition was checked since it was added."""

    @property
    def partitions(self) -> list[SharedPartition]:
        """The partitions to fetch, the least recently fetched first (`fetched`)."""
        return list(self._partitions)

    def __len__(self) -> int:
        """Return the number of its partitions."""
        return len(self._partitions)

    def add(self, partition: SharedPartition, *, most: int) -> bool:
        """Add a partition; return False if it is new and the session has the maximum number of partitions."""
        if partition not in self._partitions:
            if len(self._partitions) >= most:
                return False
            self._partitions[partition] = False
        return True

    def is_checked(self, partition: SharedPartition) -> bool:
        """Return whether the state of a share partition was checked since it was added to the session."""
        return self._partitions.get(partition, False)

    def checked(self, partition: SharedPartition) -> None:
        """Note that the state of a share partition was checked, if it is there."""
        if partition in self._partitions:
            self._partitions[partition] = True

    def forget(self, partition: SharedPartition) -> None:
        """Remove a partition, if it is there."""
        self._partitions.pop(partition, None)

    def fetched(self, partitions: Iterable[SharedPartition]) -> None:
        """Put partitions that had records behind the others, so that no partition starves another."""
        for each in partitions:
            if each in self._partitions:
                self._partitions[each] = self._partitions.pop(each)


class ShareSessions:
    """All sessions of a broker, at most `most`, with at most `most_partitions` together."""

    def __init__(self, most: int, most_partitions: int) -> None:
        self.most = most
        self.most_partitions = most_partitions
        self._partitions = 0
        self._sessions: dict[ShareSessionKey, ShareSession] = {}
        self._by_connection: dict[object, set[ShareSessionKey]] = {}
        self._by_group: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """The number of partitions in all sessions."""
        return self._partitions

    def open(self, key: ShareSessionKey, connection: object, *, acknowledges: bool) -> ShareSession:
        """Begin a session in place of any other of this member. Raise ShareSessionLimitReached, InvalidRequest."""
        if acknowledges:
            raise InvalidRequest("the first request of a share session has no acknowledgements")
        self._remove(key)
        if len(self._sessions) >= self.most:
            raise ShareSessionLimitReached(f"group.share.max.share.sessions is {self.most}")
        session = self._sessions[key] = ShareSession(key, connection)
        self._by_connection.setdefault(connection, set()).add(key)
        self._by_group[key.group_id] += 1
        return session

    def add(self, session: ShareSession, partition: SharedPartition) -> None:
        """Add a partition to a session that has not ended. Raise ShareSessionLimitReached if there is no room."""
        if session not in self:
            return
        before = len(session)
        most = min(self.most_partitions // MAX_SHARE, self.most_partitions - self._partitions + before)
        if not session.add(partition, most=most):
            raise ShareSessionLimitReached(
                f"raftlog.share.max.session.partitions is {self.most_partitions}, and a session has at most a fourth"
            )
        self._partitions += len(session) - before

    def forget(self, session: ShareSession, partition: SharedPartition) -> None:
        """Remove a partition from a session that has not ended."""
        if session in self:
            before = len(session)
            session.forget(partition)
            self._partitions -= before - len(session)

    def advance(self, key: ShareSessionKey, epoch: int, connection: object) -> ShareSession:
        """Return the session of a request after the first, and expect the next epoch from then on.

        Raise ShareSessionNotFound, InvalidShareSessionEpoch.
        """
        session = self._find(key, connection)
        if epoch != session.epoch:
            raise InvalidShareSessionEpoch(f"the share session expects epoch {session.epoch}, not {epoch}")
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        return session

    def close(self, key: ShareSessionKey, connection: object) -> ShareSession:
        """End a session at its member's request. Raise ShareSessionNotFound."""
        session = self._find(key, connection)
        self._remove(key)
        return session

    def close_all(self, connection: object) -> list[ShareSession]:
        """End the sessions of a connection that was closed."""
        keys = tuple(self._by_connection.get(connection, ()))
        ended = [self._sessions[key] for key in keys]
        for key in keys:
            self._remove(key)
        return ended

    def end_all(self) -> None:
        """End all sessions, of any connection."""
        for key in tuple(self._sessions):
            self._remove(key)

    def __contains__(self, session: ShareSession) -> bool:
        return self._sessions.get(session.key) is session

    def has_group(self, group_id: str) -> bool:
        """Return whether a member of a group has a session."""
        return group_id in self._by_group

    def _find(self, key: ShareSessionKey, connection: object) -> ShareSession:
        session = self._sessions.get(key)
        if session is None or session.connection is not connection:
            raise ShareSessionNotFound(f"member {key.member_id} has no share session on this connection")
        return session

    def _remove(self, key: ShareSessionKey) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self._partitions -= len(session)
            self._by_group[key.group_id] -= 1
            if not self._by_group[key.group_id]:
                del self._by_group[key.group_id]
            keys = self._by_connection[session.connection]
            keys.discard(key)
            if not keys:
                del self._by_connection[session.connection]
            if session.at_end is not None:
                session.at_end()
