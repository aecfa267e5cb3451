"""Adds, removes and moves voters on the leader, in the order of Kafka's AddVoterHandler, RemoveVoterHandler and
UpdateVoterHandler (KIP-853).

Where Kafka answers REQUEST_TIMED_OUT at once, a request waits until its deadline: for another change, and for a new
voter that catches up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from msgspec import structs

from raftlog.base.config.network import EVERY_INTERFACE, MAX_HOST_CHARS, format_address, is_host
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


class VoterChanges:
    """Carries out requests to change the voters, one at a time.

    `until` is a deadline in loop seconds. Each change raises NotLeaderOrFollower, or RequestTimedOut with what it
    waited for. If it was proposed before that, it may still be carried out.
    """

    def __init__(
        self,
        driver: Driver,
        linked_directory: Callable[[int], UUID | None],
        why_unreached: Callable[[Voter], Awaitable[str | None]],
        now_ms: Callable[[], int],
    ) -> None:
        """`linked_directory(node)` returns the directory of the node at the other end of a link, or None.

        `why_unreached(voter)` returns why no connection to its address can be made, or None.
        """
        self._driver = driver
        self._linked_directory = linked_directory
        self._why_unreached = why_unreached
        self._now_ms = now_ms
        self._turn = asyncio.Lock()
        self._under_way: tuple[int, UUID, bool] | None = None
        self._state = [""]

    @property
    def under_way(self) -> VotersInChange | None:
        """The add or remove that is first in line, or None. It may wait for a change of a former leader."""
        return None if self._under_way is None else VotersInChange(*self._under_way, self._state[-1])

    async def carry_out(self, request: AddVoter | RemoveVoter | UpdateVoter) -> None:
        """Answer a request within its time; see `add`, `remove` and `move`."""
        until = asyncio.get_running_loop().time() + ANSWER_SHARE * request.timeout_ms / 1000
        if isinstance(request, RemoveVoter):
            await self.remove(request.voter_id, request.directory_id, until, by=request.by)
            return
        voter = Voter(request.voter_id, request.directory_id.bytes, request.host, request.port)
        await (self.add if isinstance(request, AddVoter) else self.move)(voter, until, by=request.by)

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

        async def change(state: list[str]) -> None:
            while voters.current is None:
                replaced = [each for each in voters.uncounted() if self._linked_directory(each)]
                if not replaced:
                    break
                state[-1] = f"the new directories of voters {replaced} are not recorded yet"
                await asyncio.sleep(POLL_S)
                self._check_leads()
            if voters.current is not None:
                return
            make()
            state.append("the voters have not committed the change yet")
            await self._commit(make, VoterChange("dynamic"))

        await self._alone(change, until)

    async def add(self, voter: Voter, until: float, *, by: str = "") -> None:
        """Raise InvalidRequest, UnsupportedVersion, DuplicateVoter, InvalidVoterKey."""

        async def change(state: list[str]) -> None:
            self._present_with(voter)
            node = f"node {voter.voter_id}"
            state.append(f"{node} does not answer at {format_address(voter.host, voter.port)}")
            while (reason := await self._why_unreached(voter)) is not None:
                state[-1] = f"{node} cannot be reached at {format_address(voter.host, voter.port)}: {reason}"
                await asyncio.sleep(REDIAL_S)
                self._check_leads()
            state.append(f"{node} has not linked itself to the leader: start it, with this cluster's voters")
            await self._until_caught_up(voter, state)
            state.append("the new voters have not committed the change yet")
            extended = self._present_with(voter)  # another leader may have added it meanwhile
            await self._commit(lambda: extended, VoterChange("added", *voter.key, by))

        _check_voter(voter)
        await self._alone(change, until, (voter.voter_id, voter.directory_id, True))

    async def move(self, voter: Voter, until: float, *, by: str = "") -> None:
        """Replace the address of a voter. Raise InvalidRequest, UnsupportedVersion, VoterNotFound.

        Voters ask for it themselves, and again: no other change waits for an address that does not answer.
        """

        async def change(state: list[str]) -> None:
            if self._find(voter.voter_id, voter.directory_id).find(voter.voter_id) == voter:
                return
            if (reason := await self._why_unreached(voter)) is not None:
                address = format_address(voter.host, voter.port)
                raise RequestTimedOut(f"node {voter.voter_id} cannot be reached at {address}: {reason}")
            state.append("the voters have not committed the change yet")
            # Another leader may have changed them meanwhile.
            present = self._find(voter.voter_id, voter.directory_id)
            moved = present.with_moved(voter)
            await self._commit(lambda: moved, VoterChange("moved", *voter.key, by))

        _check_voter(voter)
        await self._alone(change, until)

    async def remove(self, voter_id: int, directory_id: UUID, until: float, *, by: str = "") -> None:
        """Raise InvalidRequest, UnsupportedVersion, VoterNotFound."""

        async def change(state: list[str]) -> None:
            await self._until_majority(self._present_without(voter_id, directory_id), state)
            state.append("the remaining voters have not committed the change yet")
            # Another leader may have changed them meanwhile.
            remaining = self._present_without(voter_id, directory_id)
            await self._commit(lambda: remaining, VoterChange("removed", voter_id, directory_id.bytes, by))

        await self._alone(change, until, (voter_id, directory_id, False))

    # -- inside --------------------------------------------------------------------------

    async def _alone(
        self,
        change: Callable[[list[str]], Awaitable[None]],
        until: float,
        what: tuple[int, UUID, bool] | None = None,
    ) -> None:
        """Make a change once no other is under way. `change` gets a list, and keeps in its last item what it waits for.

        `what` is added or removed: the voter, its directory, and whether it is added.
        """
        state = ["another change of the voters is under way"]
        self._check_leads()
        try:
            async with asyncio.timeout_at(until), self._turn:
                self._check_leads()
                self._under_way, self._state = what, state
                try:
                    while self._driver.changes_voters:  # by a former leader, or a request that has timed out
                        await asyncio.sleep(POLL_S)
                        self._check_leads()
                    await change(state)
                finally:
                    self._under_way = None
        except TimeoutError:
            raise RequestTimedOut(state[-1]) from None
        except NotController as error:
            raise NotLeaderOrFollower("this node is not the leader of the metadata quorum") from error

    def _check_leads(self) -> None:
        if not self._driver.leading:
            raise NotLeaderOrFollower("this node is not the leader of the metadata quorum")

    def _present(self) -> VotersRecord:
        present = self._driver.voters.current
        if present is None:
            raise UnsupportedVersion(
                "controller.quorum.voters is in force: raise kraft.version to 1 to change the voters"
            )
        return present

    def _find(self, voter_id: int, directory_id: UUID) -> VotersRecord:
        """Return the present voters. Raise VoterNotFound unless that directory is among them."""
        present = self._present()
        found = present.find(voter_id)
        if found is None:
            raise VoterNotFound(f"node {voter_id} is no voter; the voters are {present.ids}")
        if found.directory_id != directory_id:
            raise VoterNotFound(
                f"voter {voter_id} has directory {encode_uuid(found.directory_id)}, not {encode_uuid(directory_id)}"
            )
        return present

    def _present_with(self, voter: Voter) -> VotersRecord:
        present = self._present()
        if present.find(voter.voter_id) is not None:
            raise DuplicateVoter(f"node {voter.voter_id} is a voter already")
        return present.with_voter(voter)

    def _present_without(self, voter_id: int, directory_id: UUID) -> VotersRecord:
        present = self._find(voter_id, directory_id)
        if len(present.voters) == 1:
            raise InvalidRequest(f"node {voter_id} is the only voter: add another first")
        return present.without(voter_id)

    async def _until_caught_up(self, voter: Voter, state: list[str]) -> None:
        """Wait until a node holds all but the newest entries. Raise InvalidVoterKey if it has another directory."""
        loop, core = asyncio.get_running_loop(), self._driver.core
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
                state[-1] = (
                    f"node {voter.voter_id} has not caught up: it is at {match} of {core.commit_index}"
                )
            await asyncio.sleep(POLL_S)

    async def _until_majority(self, record: VotersRecord, state: list[str]) -> None:
        """Wait until a majority of a set is linked. Without it the set cannot be committed, and the leader resigns."""
        state.append("")
        while True:
            self._check_leads()
            reached = [each.voter_id for each in record.voters if self._is_reached(each)]
            if len(reached) > len(record.voters) // 2:
                return
            state[-1] = f"only {reached} of {record.ids} are reached, no majority: start or remove the others"
            await asyncio.sleep(POLL_S)

    def _is_reached(self, voter: Voter) -> bool:
        if voter.voter_id == self._driver.node_id:
            return voter.directory_id == self._driver.directory_id
        return self._linked_directory(voter.voter_id) == voter.directory_id

    async def _commit(self, make: Callable[[], VotersRecord], change: VoterChange) -> None:
        def checked() -> VotersRecord:
            present, record = self._driver.voters.current, make()
            assert present is None or differ_by_one(present, record)
            by = change.by[:MAX_PRINCIPAL_CHARS]
            return record.after(present, structs.replace(change, by=by, at_ms=self._now_ms()))

        await asyncio.shield(self._driver.change_voters(checked))


def _check_voter(voter: Voter) -> None:
    """Raise InvalidRequest for a voter without a directory, or with an address that no node can dial."""
    if voter.directory_id == NO_DIRECTORY:
        raise InvalidRequest("the request names no valid voter: it has no directory id")
    if not is_host(voter.host) or voter.host in EVERY_INTERFACE or voter.port == 0:
        # A dial of a malformed name raises UnicodeError, which no caller catches: it would end every voter, again
        # after each start.
        address = format_address(voter.host[:MAX_HOST_CHARS], voter.port)
        raise InvalidRequest(f"{address!r}: other nodes cannot connect to this address")
