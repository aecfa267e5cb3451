"""Adds, removes and moves voters on the leader, in the order of Kafka's AddVoterHandler, RemoveVoterHandler and
UpdateVoterHandler (KIP-853).

Where Kafka answers REQUEST_TIMED_OUT at once, a request waits until its deadline: for another change, and for a new
voter that catches up. Requests wait beside each other: a change is under way only from its proposal to its commit. So
a node that cannot be reached holds up no other change.

The answer comes when Kafka's does: at the commit for AddRaftVoter and RemoveRaftVoter, and once appended for
UpdateRaftVoter, and for AddRaftVoter without AckWhenCommitted. Voters send these two themselves, and again if a new
leader lacks the entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from msgspec import structs

from raftlog.base.config.network import EVERY_INTERFACE, MAX_HOST_CHARS, format_address, is_host, is_loopback
from raftlog.base.errors import (
    DuplicateVoter,
    InvalidRequest,
    InvalidVoterKey,
    NotController,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnsupportedVersion,
    VoterNotFound,
)
from raftlog.base.types import NO_DIRECTORY, encode_uuid
from raftlog.metadata.controller_api import AddVoter, RemoveVoter, UpdateVoter
from raftlog.metadata.quorum_description import VotersInChange
from raftlog.quorum.voters_record import (
    MAX_PRINCIPAL_CHARS,
    Voter,
    VoterChange,
    VotersRecord,
    differ_by_one,
    first_record,
)

if TYPE_CHECKING:
    from raftlog.quorum.driver import Driver
    from raftlog.quorum.voter_proposal import VoterProposal

POLL_S: Final = 0.02
"""How often a leader looks again for what a change waits for, in seconds."""

REDIAL_S: Final = 0.5
"""How often a leader dials the address of a new voter, in seconds."""

ROUND_S: Final = 1.0
"""A round ends when a new voter holds all that the leader held when the round began. The voter has caught up once a
round takes at most this, in seconds (Raft thesis §4.2.1).
"""

ANSWER_SHARE: Final = 0.9
"""After this share of its timeout a request is refused with the reason, before its sender gives up."""


class Unreached(Exception):
    """No connection to an address can be made, or it leads to another node; the message says why."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """A request under way. `waits_for`: a sentence, which is its refusal once its time is over.

    `what` is added or removed: the voter, its directory, and whether it is added.
    """

    what: tuple[int, UUID, bool] | None = None
    waits_for: str = ""


_Ready = Callable[[_Waiting], Awaitable[None]]
"""Waits until a change can be committed, and says what for. Raises what Kafka's handler answers."""

_NextSet = Callable[[], tuple[Callable[[], VotersRecord], VoterChange] | None]
"""Returns what makes the next set when it is appended, and its entry in the history; None: nothing has to change."""


class VoterRequests:
    """Carries out requests to change the voters.

    `until` is a deadline in loop seconds. Each request raises NotLeaderOrFollower, or RequestTimedOut with what it
    waited for. If it was proposed before that, it may still be carried out.
    """

    def __init__(
        self,
        driver: Driver,
        linked_directory: Callable[[int], UUID | None],
        directory_at: Callable[[Voter], Awaitable[UUID]],
        now_ms: Callable[[], int],
    ) -> None:
        """`linked_directory(node)` returns the directory of the node at the other end of a link, or None.

        `directory_at(voter)` connects to the address of a voter, and returns its directory. It raises Unreached.
        """
        self._driver = driver
        self._linked_directory = linked_directory
        self._directory_at = directory_at
        self._now_ms = now_ms
        self._waiting: list[_Waiting] = []
        self._first_set: _Waiting | None = None
        """The request that makes the first set, if any."""

    @property
    def under_way(self) -> VotersInChange | None:
        """The add or remove that has waited longest, or None. It may wait for a change of a former leader."""
        found = ((each.what, each.waits_for) for each in self._waiting)
        return next((VotersInChange(*what, waits_for) for what, waits_for in found if what is not None), None)

    async def carry_out(self, request: AddVoter | RemoveVoter | UpdateVoter) -> None:
        """Answer a request within its time; see `add`, `remove` and `move`."""
        until = asyncio.get_running_loop().time() + ANSWER_SHARE * request.timeout_ms / 1000
        if isinstance(request, RemoveVoter):
            await self.remove(request.voter_id, request.directory_id, until, by=request.by)
            return
        voter = Voter(request.voter_id, request.directory_id.bytes, request.host, request.port)
        if isinstance(request, UpdateVoter):
            await self.move(voter, until, by=request.by)
        else:
            await self.add(voter, until, by=request.by, until_committed=request.until_committed)

    async def make_dynamic(self, addresses: Mapping[int, tuple[str, int]], until: float) -> None:
        """Write the voters of the config as the first set: kraft.version 1. Raise UnsupportedVersion.

        A voter with a replaced disk is waited for: the set would name its former directory, and shut it out.
        """
        voters = self._driver.voters

        def make() -> VotersRecord:
            record = first_record(addresses, voters.recorded() or {})
            if record is None:
                raise UnsupportedVersion(
                    "the metadata does not name the directory of each voter yet: start all voters, and wait until the "
                    "leader has recorded them"
                )
            return record

        async def ready(request: _Waiting) -> None:
            await self._until_settled(request)
            while voters.current is None:
                replaced = [each for each in voters.uncounted() if self._linked_directory(each)]
                if not replaced:
                    return
                request.waits_for = f"the new directories of voters {replaced} are not recorded yet"
                await asyncio.sleep(POLL_S)
                self._check_leads()

        def next_set() -> tuple[Callable[[], VotersRecord], VoterChange] | None:
            if voters.current is not None:
                return None
            make()
            return make, VoterChange("dynamic")

        self._first_set = request = _Waiting()
        try:
            await self._change(request, ready, next_set, until)
        finally:
            self._first_set = None

    async def add(self, voter: Voter, until: float, *, by: str = "", until_committed: bool = True) -> None:
        """Raise InvalidRequest, UnsupportedVersion, DuplicateVoter, InvalidVoterKey."""

        async def ready(request: _Waiting) -> None:
            await self._until_settled(request)
            self._check_address(voter, self._set_with(voter))
            await self._until_reached(voter, request)
            await self._until_caught_up(voter, request)

        def next_set() -> tuple[Callable[[], VotersRecord], VoterChange]:
            extended = self._set_with(voter)  # another leader may have added it meanwhile
            return lambda: extended, VoterChange("added", *voter.key, by)

        _check_voter(voter)
        request = _Waiting((voter.voter_id, voter.directory_id, True))
        await self._change(request, ready, next_set, until, until_committed=until_committed)

    async def move(self, voter: Voter, until: float, *, by: str = "") -> None:
        """Replace the address of a voter. Raise InvalidRequest, UnsupportedVersion, VoterNotFound, InvalidVoterKey.

        Voters ask for it themselves, and again: an address that does not answer is refused at once.
        """

        async def ready(request: _Waiting) -> None:
            await self._until_settled(request)
            present = self._set_of(voter.voter_id, voter.directory_id)
            if present.find(voter.voter_id) == voter:
                return
            self._check_address(voter, present)
            if (reason := await self._why_unreached(voter)) is not None:
                raise RequestTimedOut(reason)

        def next_set() -> tuple[Callable[[], VotersRecord], VoterChange] | None:
            present = self._set_of(voter.voter_id, voter.directory_id)
            moved = present.with_moved(voter)
            if present.find(voter.voter_id) == voter:
                return None
            return lambda: moved, VoterChange("moved", *voter.key, by)

        _check_voter(voter)
        await self._change(_Waiting(), ready, next_set, until, until_committed=False)

    async def remove(self, voter_id: int, directory_id: UUID, until: float, *, by: str = "") -> None:
        """Raise InvalidRequest, UnsupportedVersion, VoterNotFound."""

        async def ready(request: _Waiting) -> None:
            await self._until_settled(request)
            await self._until_majority(lambda: self._set_without(voter_id, directory_id), request)

        def next_set() -> tuple[Callable[[], VotersRecord], VoterChange]:
            # Another leader may have changed them meanwhile.
            remaining = self._set_without(voter_id, directory_id)
            return lambda: remaining, VoterChange("removed", voter_id, directory_id.bytes, by)

        await self._change(_Waiting((voter_id, directory_id, False)), ready, next_set, until)

    # -- inside --------------------------------------------------------------------------

    async def _change(
        self,
        request: _Waiting,
        ready: _Ready,
        next_set: _NextSet,
        until: float,
        *,
        until_committed: bool = True,
    ) -> None:
        """Propose a change once it can be committed and no other is under way, and wait for its append or commit."""
        self._check_leads()
        self._waiting.append(request)
        try:
            async with asyncio.timeout_at(until):
                while True:
                    await ready(request)
                    if not self._driver.changes_voters:  # else a request went before meanwhile
                        break
                proposal = self._propose(next_set)
                if proposal is not None:
                    request.waits_for = "the voters have not committed the change yet"
                    await asyncio.shield(proposal.committed if until_committed else proposal.appended)
        except TimeoutError:
            raise RequestTimedOut(request.waits_for) from None
        except NotController as error:
            raise NotLeaderOrFollower("this node is not the leader of the metadata quorum") from error
        finally:
            self._waiting.remove(request)

    def _propose(self, next_set: _NextSet) -> VoterProposal | None:
        found = next_set()
        if found is None:
            return None
        make, change = found

        def checked() -> VotersRecord:
            present, record = self._driver.voters.current, make()
            assert present is None or differ_by_one(present, record)
            by = change.by[:MAX_PRINCIPAL_CHARS]
            return record.after(present, structs.replace(change, by=by, at_ms=self._now_ms()))

        return self._driver.change_voters(checked)

    def _check_leads(self) -> None:
        if not self._driver.leading:
            raise NotLeaderOrFollower("this node is not the leader of the metadata quorum")

    async def _until_settled(self, request: _Waiting) -> None:
        """Wait until the newest set is committed. It may be of a former leader, or of a request that has timed out.

        The first set may itself wait for a replaced disk. Until it is appended, the voters look static.
        """
        while self._driver.changes_voters or self._first_set not in (None, request):
            request.waits_for = "another change of the voters is under way"
            await asyncio.sleep(POLL_S)
            self._check_leads()

    def _present_set(self) -> VotersRecord:
        """Return the newest set. Raise UnsupportedVersion if the voters are static."""
        present = self._driver.voters.current
        if present is None:
            raise UnsupportedVersion(
                "controller.quorum.voters is in force: raise kraft.version to 1 to change the voters"
            )
        return present

    def _set_of(self, voter_id: int, directory_id: UUID) -> VotersRecord:
        """Return the newest set. Raise VoterNotFound unless that directory is among its voters."""
        present = self._present_set()
        found = present.find(voter_id)
        if found is None:
            raise VoterNotFound(f"node {voter_id} is no voter; the voters are {present.ids}")
        if found.directory_id != directory_id:
            raise VoterNotFound(
                f"voter {voter_id} has directory {encode_uuid(found.directory_id)}, not {encode_uuid(directory_id)}"
            )
        return present

    def _set_with(self, voter: Voter) -> VotersRecord:
        """Return the newest set with one more voter. Raise DuplicateVoter."""
        present = self._present_set()
        if present.find(voter.voter_id) is not None:
            raise DuplicateVoter(f"node {voter.voter_id} is a voter already")
        return present.with_voter(voter)

    def _set_without(self, voter_id: int, directory_id: UUID) -> VotersRecord:
        """Return the newest set without a voter. Raise VoterNotFound, InvalidRequest."""
        present = self._set_of(voter_id, directory_id)
        if len(present.voters) == 1:
            raise InvalidRequest(f"node {voter_id} is the only voter: add another first")
        return present.without(voter_id)

    def _check_address(self, voter: Voter, record: VotersRecord) -> None:
        """Raise InvalidRequest for an address that this leader may reach, but not the other nodes."""
        others = [each for each in record.voters if each.voter_id != voter.voter_id]
        address = format_address(voter.host, voter.port)
        if is_loopback(voter.host) and not all(is_loopback(each.host) for each in others):
            raise InvalidRequest(
                f"{address} leads the nodes of other machines to themselves: name voter {voter.voter_id} by its host"
            )
        if voter.voter_id == self._driver.node_id and others:
            raise RequestTimedOut(
                f"node {voter.voter_id} leads: only another leader can find out whether {address} reaches it"
            )

    async def _why_unreached(self, voter: Voter) -> str | None:
        """Return why no connection to its address can be made, or None. Raise InvalidVoterKey for another directory."""
        node, address = f"node {voter.voter_id}", format_address(voter.host, voter.port)
        try:
            found = await self._directory_at(voter)
        except Unreached as error:
            return f"{node} cannot be reached at {address}: {error}"
        self._check_leads()
        if found != voter.directory_id:
            there = encode_uuid(found)
            raise InvalidVoterKey(
                f"{node} has directory {there} at {address}, not {encode_uuid(voter.directory_id)}"
            )
        return None

    async def _until_reached(self, voter: Voter, request: _Waiting) -> None:
        """Wait until a connection to the address of a voter can be made: other nodes will dial it there."""
        request.waits_for = (
            f"node {voter.voter_id} does not answer at {format_address(voter.host, voter.port)}"
        )
        while (reason := await self._why_unreached(voter)) is not None:
            request.waits_for = reason
            await asyncio.sleep(REDIAL_S)
            self._check_leads()

    async def _until_caught_up(self, voter: Voter, request: _Waiting) -> None:
        """Wait until a node holds all but the newest entries. Raise InvalidVoterKey if it has another directory."""
        loop, core = asyncio.get_running_loop(), self._driver.core
        request.waits_for = (
            f"node {voter.voter_id} has not linked itself to the leader: start it, with this cluster's voters"
        )
        target, began_at = core.journal.last_index, loop.time()
        while True:
            self._check_leads()
            directory_id = self._linked_directory(voter.voter_id)
            if directory_id not in (None, voter.directory_id):
                raise InvalidVoterKey(
                    f"node {voter.voter_id} has directory {encode_uuid(directory_id)}, not "
                    f"{encode_uuid(voter.directory_id)}"
                )
            match = core.match_index(voter.voter_id) if directory_id is not None else 0
            if match >= target:
                if loop.time() <= began_at + ROUND_S:
                    return
                target, began_at = core.journal.last_index, loop.time()
            if match:
                request.waits_for = (
                    f"node {voter.voter_id} has not caught up: it is at {match} of {core.commit_index}"
                )
            await asyncio.sleep(POLL_S)

    async def _until_majority(self, next_set: Callable[[], VotersRecord], request: _Waiting) -> None:
        """Wait until a majority of the next set is linked. Without it the set cannot be committed, and the leader
        resigns.

        Other requests may change the voters meanwhile. A voter that they remove may stay linked, and counts no more.
        """
        while True:
            self._check_leads()
            record = next_set()
            reached = [each.voter_id for each in record.voters if self._is_reached(each)]
            if len(reached) > len(record.voters) // 2:
                return
            request.waits_for = (
                f"only {reached} of {record.ids} are reached, no majority: start or remove the others"
            )
            await asyncio.sleep(POLL_S)

    def _is_reached(self, voter: Voter) -> bool:
        if voter.voter_id == self._driver.node_id:
            return voter.directory_id == self._driver.directory_id
        return self._linked_directory(voter.voter_id) == voter.directory_id


def _check_voter(voter: Voter) -> None:
    """Raise InvalidRequest for a voter without a directory, or with an address that no node can dial."""
    if voter.directory_id == NO_DIRECTORY:
        raise InvalidRequest("the request names no valid voter: it has no directory id")
    if not is_host(voter.host) or voter.host in EVERY_INTERFACE or voter.port == 0:
        # A dial of a malformed name raises UnicodeError, which no caller catches: it would end every voter, again
        # after each start.
        address = format_address(voter.host[:MAX_HOST_CHARS], voter.port)
        raise InvalidRequest(f"{address!r}: other nodes cannot connect to this address")
