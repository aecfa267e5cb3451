"""A proposed set of voters on a leader: appended once all before it is committed, then committed.

Other proposals wait while it waits for the commit of earlier entries. So the former set is committed before another is
appended, and so is an entry of the leader's term. No two are under way at once. The set is made when it is appended: an
earlier entry may record another directory of a voter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlog.base.errors import NotController
from raftlog.quorum.voters_record import VotersRecord, encode_voters

if TYPE_CHECKING:
    from raftlog.quorum.core import RaftCore


class VoterProposal:
    """A proposal until its end. `make` returns the set; `take_proposals` appends what was proposed before it.

    `appended` and `committed` raise NotController if this node no longer leads its term.
    """

    def __init__(
        self, core: RaftCore, make: Callable[[], VotersRecord], take_proposals: Callable[[], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.appended: asyncio.Future[None] = loop.create_future()
        self.committed: asyncio.Future[None] = loop.create_future()
        for each in (self.appended, self.committed):
            # A request waits for one of the two at most, and may have timed out.
            each.add_done_callback(asyncio.Future.exception)
        self._core = core
        self._term = core.term
        self._make = make
        self._take_proposals = take_proposals
        self._is_new = True
        self._index = 0

    @property
    def is_due(self) -> bool:
        """Whether it is to be appended now."""
        return not (self._index or self.committed.done() or self.waits)

    @property
    def waits(self) -> bool:
        """Whether earlier entries are to be committed and applied first."""
        core = self._core
        return not (self._index or self.committed.done()) and core.applied_index < core.journal.last_index

    def append_if_due(self) -> None:
        if self._is_new:
            self._is_new = False
            self._take_proposals()
        self.end_if_committed()
        if self.is_due:
            self._index = self._core.propose_voters(encode_voters(self._make()))
            self.appended.set_result(None)

    def end_if_committed(self) -> None:
        """End it if it is committed, or if this node no longer leads its term."""
        core = self._core
        if self.committed.done():
            return
        if not core.is_leader or core.term != self._term:
            for each in (self.appended, self.committed):
                if not each.done():
                    each.set_exception(NotController())
        elif self._index and core.commit_index >= self._index:
            self.committed.set_result(None)
