"""The set of voters. A voter is a node id with the id of its metadata directory: the ReplicaKey of KIP-853.

The metadata records the directory of each voter. A voter with a replaced disk has another directory id, and lacks the
former entries and vote. So:

- A voter grants votes only if the candidate's metadata names the voter's own directory (Kafka: INVALID_VOTER_KEY).
- It stands for leader only if its own metadata names its directory.
- A leader counts its answers, for commits and for check quorum, only once the committed metadata names its directory.
  The leader has that recorded when the voter holds all that is committed; the record commits without its answer.

A directory that was restored from an older copy counts as a replaced disk: it takes another id (`incarnations`).

While no metadata names a cluster, the voters are *forming* one: the first leader needs every vote. With a majority, two
empty disks could form a new cluster while the third voter, which has the metadata, is down. The directories that gave
these votes are the voters from the beginning.

A voter of a cluster that records no directories (`raftlog.metadata.version` below 2) counts by its id alone, as do ids
that are not recorded yet.

The voters of the config are in force until the log holds a set of voters (`voters_record`). A config that lacks a
voter with a recorded directory was edited since, and its majority may miss the other voters. So a node with that config
does not stand for leader. Kafka's static quorum refuses to start then.

A config that lists voters without a recorded directory is edited node by node, too. Two majorities, of the former and
of the longer list, need not overlap. So a candidate with the longer list needs the votes of all voters on it, and each
of them must have the same list. Once the leader has recorded the new voters, a majority suffices again.

From the first set on, the newest set of the log names the voters and their directories, instead of config and metadata.
Other nodes with a journal are observers: a leader catches them up, and they grant votes only if the candidate's set
names them. This module knows no connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from raftlog.base.checked_files import CHECKSUMS
from raftlog.base.types import METADATA_FOLDER, NO_DIRECTORY, encode_uuid
from raftlog.quorum.handshake_messages import Introduced
from raftlog.quorum.incarnations import HeardVoters

if TYPE_CHECKING:
    from raftlog.quorum.voters_record import VotersRecord

UNRECORDED: Final = NO_DIRECTORY.bytes
"""Instead of a directory id: the sender's metadata names directories of voters, but not of this voter."""

Recorded = Callable[[], Mapping[int, UUID] | None]
"""Returns the directory of each voter as the applied metadata names it; None while it names no cluster."""


class AsksForVote(Protocol):
    """A RequestVote or a PreVote."""

    @property
    def directory_id(self) -> bytes: ...

    @property
    def forming(self) -> bool: ...

    @property
    def voters(self) -> Sequence[int]: ...


class VoterSet:
    """The voters as seen by one of them. `barred`: why this voter must not help to form a cluster, or None.

    `votes`: whether this node is among the voters of the config.
    """

    def __init__(
        self,
        node_id: int,
        peers: Iterable[int] = (),
        *,
        directory_id: UUID = NO_DIRECTORY,
        recorded: Recorded = dict,
        barred: str | None = None,
        votes: bool = True,
    ) -> None:
        self.node_id = node_id
        self.peers = tuple(sorted(peers))
        """The other voters."""
        self.current: VotersRecord | None = None
        """The newest set of the log; None while the voters of the config are in force."""
        self._configured = self.peers
        self._is_configured = votes
        self.directory_id = directory_id
        self._recorded = recorded
        self.linked: dict[int, UUID] = {}
        """The directory at the other end of the newest link to each voter."""
        self.incarnations: dict[int, bytes] = {}
        """The process at the other end of that link; absent for releases up to 0.3.0."""
        self._barred = barred
        self._granted: dict[int, UUID] = {}
        """The directories that voted for this voter while it was forming."""
        self._missed_since: dict[int, float] = {}
        """When the last link to the recorded directory of a voter ended, loop seconds."""
        self._are_forming: dict[int, bool] = {}
        """Whether each other voter that asked for a vote knows of no cluster."""

    def adopt(self, record: VotersRecord | None) -> None:
        """Take over the newest set of the log; None: the voters of the config."""
        self.current = record
        if record is None:
            self.peers = self._configured
        else:
            self.peers = tuple(each for each in record.ids if each != self.node_id)

    @property
    def observes(self) -> bool:
        """Whether only a set of the log can make this node a voter, not its config."""
        return self.current is not None or not self._is_configured

    @property
    def is_voter(self) -> bool:
        """Whether this node is among the voters: with this directory, if a set names it."""
        if self.current is None:
            return self._is_configured
        found = self.current.find(self.node_id)
        return found is not None and found.directory_id == self.directory_id

    def recorded(self) -> Mapping[int, UUID] | None:
        """Return the directory of each voter, by the newest set or as the applied metadata names it; None while it
        names no cluster.
        """
        return self._recorded() if self.current is None else self.current.directories()

    # -- elections -----------------------------------------------------------------------

    @property
    def is_forming(self) -> bool:
        """Whether this voter's metadata names no cluster yet."""
        return self.recorded() is None

    @property
    def may_stand(self) -> bool:
        """Whether this voter may ask for votes: its directory is recorded, or it helps to form a cluster.

        Its config must not lack a recorded voter.
        """
        recorded = self.recorded()
        if self.current is not None or not self.is_voter:
            return self.is_voter
        if recorded is None:
            return self._barred is None
        if self.left_out:
            return False
        return recorded.get(self.node_id, self.directory_id) == self.directory_id

    @property
    def left_out(self) -> list[int]:
        """The voters that the metadata names and the config in force lacks, ascending."""
        recorded = None if self.current is not None else self._recorded()
        return sorted((recorded or {}).keys() - {self.node_id, *self.peers})

    @property
    def newly_listed(self) -> list[int]:
        """The voters of the config in force that the metadata lacks, ascending; none while it names no directories."""
        recorded = None if self.current is not None else self._recorded()
        if not recorded or not self._is_configured:
            return []
        return sorted({self.node_id, *self.peers} - recorded.keys())

    @property
    def needs_all_votes(self) -> bool:
        """Whether voters may count by other lists than this voter's: without a cluster, or with a longer list."""
        return self.is_forming or bool(self.newly_listed)

    @property
    def votes_needed(self) -> int:
        """The votes that make a leader, its own included. It does not count if the newest set lacks this node."""
        if self.needs_all_votes:
            return len(self.peers) + 1
        return (len(self.peers) + 1) // 2 + 1 if self.is_voter else len(self.peers) // 2 + 2

    def claim(self, peer: int) -> tuple[bytes, bool, tuple[int, ...]]:
        """Return the last fields of a request for a voter's vote.

        They are its directory as recorded here, `is_forming`, and the list that its config must have, if any.
        """
        recorded = self.recorded()
        if not recorded:
            return b"", recorded is None, ()
        found = recorded.get(peer)
        listed = tuple(sorted((self.node_id, *self.peers))) if self.newly_listed else ()
        return (UNRECORDED if found is None else found.bytes), False, listed

    def may_grant(self, peer: int, asked: AsksForVote, *, has_log: bool) -> bool:
        """Return whether this voter may grant a vote, regardless of terms and logs.

        `has_log`: its log holds entries, although it may not know yet that any is committed.
        """
        self._are_forming[peer] = asked.forming
        if asked.voters and sorted(asked.voters) != sorted((self.node_id, *self.peers)):
            return False
        if asked.directory_id not in (b"", UNRECORDED):
            return asked.directory_id == self.directory_id.bytes
        if self.current is not None or not self.is_voter:
            return False
        if not self.is_forming:
            return self.may_stand
        if asked.forming:
            return self._barred is None
        return has_log or asked.directory_id == UNRECORDED

    def yields_to(self, peer: int) -> bool:
        """Return whether an equal candidate goes first: where all votes are needed, voters must agree on one."""
        return not self.needs_all_votes or peer < self.node_id

    def distrust(self, directory_id: UUID) -> None:
        """Take another directory id, since the directory is an older copy. It does not help to form a cluster,
        either.
        """
        self.directory_id = directory_id
        self._barred = (
            "this voter's metadata folder is an older copy than other voters know: start the voters that have "
            "metadata; it votes once it has caught up with a leader"
        )

    def note_vote(self, peer: int) -> None:
        """Remember the directory that voted for this voter."""
        self._granted[peer] = self.linked.get(peer, NO_DIRECTORY)

    # -- counting ------------------------------------------------------------------------

    def counts(self, peer: int) -> bool:
        """Return whether the answers of a linked node count towards a majority."""
        if peer not in self.peers:
            return False
        recorded, directory = self.recorded(), self.linked.get(peer, NO_DIRECTORY)
        if recorded is None:
            return self._granted.get(peer, directory) == directory
        return recorded.get(peer, directory) == directory

    def unrecorded(self) -> dict[int, UUID]:
        """Return the directories of this and linked voters that the metadata does not name; of all that formed it."""
        recorded = self.recorded()
        known = {**(self._granted if recorded is None else self.linked), self.node_id: self.directory_id}
        return {
            voter: directory
            for voter, directory in sorted(known.items())
            if directory != NO_DIRECTORY
            and (recorded or {}).get(voter) != directory
            and (voter == self.node_id or voter in self.peers)
        }

    def note_heard(self, peer: int, heard: HeardVoters) -> None:
        """Stage the incarnation of a linked node."""
        directory_id, incarnation = self.linked.get(peer), self.incarnations.get(peer)
        if directory_id is None or not incarnation or heard.knows(peer, directory_id, incarnation):
            return
        heard.note(peer, directory_id, incarnation, recorded=self.recorded_directory(peer))

    def note_link_lost(self, peer: int, now: float) -> None:
        """Remember when the recorded directory of a voter was last linked."""
        if self.is_recorded(peer, self.linked[peer]):
            self._missed_since[peer] = now

    def missed_since(self, peer: int, led_since: float) -> float:
        """Return since when a leader of `led_since` has missed a voter's recorded directory, if any."""
        if peer not in (self.recorded() or {}):
            return float("-inf")
        return max(led_since, self._missed_since.get(peer, led_since))

    def uncounted(self) -> list[int]:
        """Return the linked voters with a directory that the metadata does not name, though it names another of
        theirs.
        """
        return [peer for peer in self.peers if peer in self.linked and not self.counts(peer)]

    def recorded_directory(self, voter: int) -> UUID:
        """Return the directory of a voter that the metadata names."""
        return (self.recorded() or {}).get(voter, NO_DIRECTORY)

    def directory_of(self, voter: int) -> UUID:
        """Return the directory of a voter as it said itself, or else as recorded."""
        if voter == self.node_id:
            return self.directory_id
        return self.linked.get(voter) or self.recorded_directory(voter)

    def is_recorded(self, peer: int, directory_id: UUID) -> bool:
        """Return whether the metadata names this directory of a voter."""
        return (self.recorded() or {}).get(peer) == directory_id

    # -- reasons -------------------------------------------------------------------------

    @property
    def way_back(self) -> str:
        """The step after which a node votes that has another directory than the recorded one."""
        if self.current is None:
            return "it votes again once a leader has caught it up"
        return (
            "it votes again once `raftlog quorum remove` and `raftlog quorum add` have replaced its directory"
        )

    def refusal_reason(self, peer: Introduced) -> str | None:
        """Return the reason to refuse a link to a node with this self-description, or None."""
        if not (peer.new_journal and self.is_recorded(peer.node_id, peer.directory_id)):
            return None
        return (
            f"directory {encode_uuid(peer.directory_id)} of node {peer.node_id} is a voter, but its metadata log is "
            f"gone: put {METADATA_FOLDER} back, or, if it is lost, remove {METADATA_FOLDER} and "
            f"meta.properties{CHECKSUMS}, and the line directory.id from meta.properties: {self.way_back}"
        )

    def why_no_leader(self) -> str | None:
        """Return why this voter has no leader although others may be linked, as far as directories explain it."""
        recorded = self.recorded()
        if not self.is_voter:
            return "this node is no voter, and no voter that it reaches has a leader"
        if recorded is None:
            return self._why_not_formed()
        if left_out := self.left_out:
            return (
                f"controller.quorum.voters lacks {left_out}, which the metadata names as voters: by a shorter list two "
                f"leaders could be elected. List the addresses of {sorted(recorded)} again. To remove a voter, use "
                "`raftlog quorum dynamic` and then `raftlog quorum remove`"
            )
        if not self.may_stand:
            return (
                f"this voter's directory {encode_uuid(self.directory_id)} is not the one that the metadata names, "
                f"{encode_uuid(recorded[self.node_id])}: it votes once a leader has caught it up"
            )
        if newly_listed := self.newly_listed:
            return (
                f"controller.quorum.voters lists {newly_listed}, which the metadata does not name yet: the next leader "
                f"needs the votes of all voters {sorted((self.node_id, *self.peers))}, each started with this same "
                "list. Start them, or list the former voters again"
            )
        others = self.uncounted()
        if not others:
            return None
        return (
            f"voters {others} have other directories than the metadata names. Of each: {self.way_back}. A leader needs "
            f"{self.votes_needed} of the recorded ones. If their former disks are lost, restore the cluster from a "
            "backup"
        )

    def _why_not_formed(self) -> str:
        formed = sorted(peer for peer, forming in self._are_forming.items() if not forming)
        if formed:
            return (
                f"this voter's metadata log is empty, and voters {formed} have metadata: it votes once a leader has "
                "caught it up"
            )
        if self._barred is not None:
            return self._barred
        return (
            "no voter that is reached has metadata, and the first leader of a cluster needs the votes of all voters: "
            "start the others, or take them out of controller.quorum.voters"
        )
