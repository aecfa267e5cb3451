"""One follower's progress, as its fetches in this leader epoch show it to the leader."""

from __future__ import annotations

from raftlog.base.types import NO_EPOCH, NO_OFFSET

NEVER = float("-inf")


class FollowerProgress:
    """One follower. `end_offset` is the offset of its last fetch, -1 before the first. Its log counts up to there: it
    fetches again once it has flushed, or written with log.flush.policy=os.

    A follower is caught up when a fetch starts at the log end. Behind a busy leader it is enough if the fetch starts at
    the log end of the time of its previous fetch.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_at",
        "end_offset",
        "is_caught_up",
        "last_fetch_at",
        "last_fetch_leader_end_offset",
        "log_start_offset",
        "served_offset",
        "served_times",
    )

    def __init__(self, broker_id: int, caught_up_at: float) -> None:
        self.broker_id = broker_id
        self.broker_epoch = NO_EPOCH
        self.end_offset = NO_OFFSET
        self.caught_up_at = caught_up_at
        self.last_fetch_at = NEVER
        self.is_caught_up = False
        """Whether its newest fetch found it caught up."""
        self.last_fetch_leader_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.served_offset = NO_OFFSET
        self.served_times = 0
        """How many times in a row it fetched records from `served_offset` on."""

    def note_fetch(self, fetch_offset: int, broker_epoch: int, *, leader_end_offset: int, now: float) -> None:
        if broker_epoch != self.broker_epoch:
            self.last_fetch_leader_end_offset = NO_OFFSET  # it was fetched by an earlier incarnation
        if fetch_offset >= leader_end_offset:
            self.caught_up_at = now
            self.is_caught_up = True
        elif 0 <= self.last_fetch_leader_end_offset <= fetch_offset:
            self.caught_up_at = max(self.caught_up_at, self.last_fetch_at)
            self.is_caught_up = True
        else:
            self.is_caught_up = False
        self.broker_epoch = broker_epoch
        self.end_offset = fetch_offset
        self.last_fetch_at = now
        self.last_fetch_leader_end_offset = leader_end_offset
