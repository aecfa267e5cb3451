"""The time for deleting data by its age. A wrong wall clock must not make everything old at once.

A node deletes by age only while it believes its wall clock. There are two reasons for doubt.

- The clock itself: while the node runs, it must move as the uptime does. At a start, it must be near the last
  *believed time*, which is on the disk (`resume`).
- The other clocks: at least half of all clocks, this included, disagree with this clock (`OtherClocks`).

A doubt about the clock itself ends when the clock returns to the believed time, or when an operator accepts it. It ends
when most of the other brokers agree, and at least one of them has believed its own clock all along. And it ends when
the clock has run for as long as it jumped, and the others do not contradict it. So a record that is deleted although
all clocks of a cluster are wrong has existed for half of its retention time at least. The others' contradiction ends
when they agree.

While in doubt, the believed time is the last believed time plus the uptime since. Only that is written to the disk,
never a wall clock in doubt. A record that is stamped meanwhile gets the later time, so that a clock that went back does
not make it old.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

import msgspec

from raftlog.base.compiled import crc32c
from raftlog.base.disk import Disk
from raftlog.base.log import get_logger

CLOCK_CHECKPOINT: Final = "clock-checkpoint"
"""The file of the last believed time, in the metadata log directory. An incomplete file counts as absent."""
MAX_JUMP_MS: Final = 60_000
"""The wall clock may differ from the uptime by this much within ANCHORED_S. Setting a clock right needs less."""
ANCHORED_S: Final = 600.0
"""A clock may run too fast or too slow by MAX_JUMP_MS in this many seconds: a tenth."""
MOST_APART_MS: Final = 600_000
"""Two clocks agree if they are not farther apart. A reading may be some seconds old."""
REPORTED_S: Final = 60.0
"""The others' clocks count for this long after the active controller reported them."""
NOTHING_IS_OLD_MS: Final = 0
"""The time for judging age in doubt: no record is older than this."""

log = get_logger(__name__)


class ClockState(IntEnum):
    """The degree to which a node trusts its clock, as its heartbeats report. UNSAID: its release does not report it."""

    UNSAID = 0
    BELIEVED = 1
    UNCONFIRMED = 2
    """It has just started, and the others' clocks are unknown yet. Its clock continues from the time on its disk."""
    NEW = 3
    """The same, but there is no time on its disk."""
    DOUBTED = 4
    """It jumped, or is far from the time on the disk."""


class OtherClocks(msgspec.Struct, frozen=True, array_like=True):
    """The clocks of the other unfenced brokers, compared with one broker's by the active controller.

    `alive`: how many brokers report clocks. `reported`: how many of these clocks are known. `agreeing`: how many of
    these are within MOST_APART_MS. `believing` and `doubting`: how many of the agreeing are BELIEVED or DOUBTED.
    `ahead_ms`: how far the median of all others is ahead, or (negative) behind.
    """

    alive: int = 0
    reported: int = 0
    agreeing: int = 0
    believing: int = 0
    doubting: int = 0
    ahead_ms: int = 0

    @property
    def are_known(self) -> bool:
        """Whether enough of them are known."""
        return 2 * self.reported >= self.alive

    @property
    def contradict(self) -> bool:
        """Whether this clock and the agreeing clocks are not a majority."""
        return self.reported > 0 and 2 * (self.agreeing + 1) <= self.reported + 1

    @property
    def confirm(self) -> bool:
        """Whether most agree, and at least one did not doubt its clock: not all were set wrong together."""
        return self.believing > 0 and 2 * self.agreeing > self.alive and not self.contradict


class Ages:
    """The wall clock for deleting data by age. Each call reads the clocks.

    `uptime_s` is a clock that cannot be set. Until `resume`, the first reading is believed without other nodes.
    """

    __slots__ = (
        "_anchored_s",
        "_asks_others",
        "_before",
        "_disk_lead_ms",
        "_doubted_s",
        "_is_overruled",
        "_lead_ms",
        "_metadata_lead_ms",
        "_most_ms",
        "_others",
        "_others_s",
        "_read_at_s",
        "_reported_ms",
        "_seen_ms",
        "_state",
        "_uptime_s",
        "_wall_clock_ms",
        "floor_ms",
        "on_believed",
    )

    def __init__(self, wall_clock_ms: Callable[[], int], uptime_s: Callable[[], float]) -> None:
        self._wall_clock_ms = wall_clock_ms
        self._uptime_s = uptime_s
        self.on_believed: Callable[[], None] = _nothing
        """Called when the clock is believed again: the time is worth writing."""
        self.floor_ms = 0
        """The believed time at the last reading, for hot paths: their timestamps must not be older."""
        self._state = ClockState.BELIEVED
        self._before = ClockState.BELIEVED
        """The state before the doubt, to which a clock that comes back returns."""
        self._lead_ms: int | None = None
        """The believed lead of the wall clock over the uptime; None before the first reading."""
        self._anchored_s = 0.0
        """When that was set, in uptime."""
        self._seen_ms = 0
        """The lead at the last reading."""
        self._reported_ms = 0
        """The lead as the last heartbeat reported it."""
        self._doubted_s = 0.0
        """When the last jump was found, in uptime."""
        self._most_ms = MAX_JUMP_MS
        """How near the believed time a clock in doubt must come to be believed."""
        self._asks_others = False
        self._others = OtherClocks()
        self._others_s: float | None = None
        """When they were last reported, in uptime."""
        self._read_at_s = 0.0
        """When the clocks were last read, in uptime."""
        self._is_overruled = False
        """An operator decided that the others are wrong."""
        self._metadata_lead_ms: int | None = None
        """The lead over the uptime by the newest metadata batch."""
        self._disk_lead_ms: int | None = None
        """The lead over the uptime by the time on the disk at the start."""

    # -- questions ---------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the time for judging age, NOTHING_IS_OLD_MS in doubt: data that is too old by it may be deleted."""
        wall_ms, believed_ms = self._read_clocks()
        return min(wall_ms, believed_ms) if self._may_delete else NOTHING_IS_OLD_MS

    def believed_ms(self) -> int:
        """Return the time as far as it is believed; in doubt it does not follow the wall clock."""
        return self._read_clocks()[1]

    def latest_ms(self) -> int:
        """Return the time for timestamps of data that will be deleted by age."""
        return max(self._read_clocks())

    def jump_ms(self) -> int:
        """Return how far the wall clock is ahead of the believed time (negative: behind); 0 if it is believed."""
        wall_ms, believed_ms = self._read_clocks()
        return wall_ms - believed_ms

    def reading(self) -> tuple[int, ClockState]:
        """Return the clock for a heartbeat: the wall clock's time, and its state."""
        wall_ms, _ = self._read_clocks()
        self._reported_ms = self._seen_ms
        return wall_ms, self._state

    def time_to_keep(self) -> int | None:
        """Return the time to write to the disk, or None: a wall clock in doubt must not be written.

        In doubt it is the last believed time plus the uptime since, which cannot be ahead of the true time. So it is
        before confirmation, as on a controller without the broker role until it becomes active.
        """
        _, believed_ms = self._read_clocks()
        if self._state is ClockState.UNCONFIRMED and self._disk_lead_ms is not None:
            return min(believed_ms, self._disk_lead_ms + int(self._uptime_s() * 1000))
        if self._state is ClockState.DOUBTED:
            return None if self._before is ClockState.NEW else believed_ms
        return believed_ms if self._may_delete else None

    @property
    def state(self) -> ClockState:
        """The state at the last reading."""
        return self._state

    @property
    def was_found_at_start(self) -> bool:
        """Whether the doubt began with the start, rather than with a jump."""
        return self._before is not ClockState.BELIEVED

    @property
    def contradiction(self) -> OtherClocks | None:
        """The other clocks, if too many of them disagree and no operator overruled them."""
        return self._others if self._others.contradict and not self._is_overruled else None

    @property
    def _may_delete(self) -> bool:
        return self._state is ClockState.BELIEVED and self.contradiction is None

    # -- events ------------------------------------------------------------------------------------------------------

    def resume(self, last_ms: int | None, *, most_ms: int) -> None:
        """Continue from the last believed time on the disk (None: there is none).

        No data is old before the others' clocks are known. A clock farther than `most_ms` from that time is in doubt.
        """
        self._asks_others, self._most_ms = True, most_ms
        uptime_s, wall_ms = self._uptime_s(), self._wall_clock_ms()
        uptime_ms = int(uptime_s * 1000)
        self._disk_lead_ms = None if last_ms is None else last_ms - uptime_ms
        self._state = ClockState.NEW if last_ms is None else ClockState.UNCONFIRMED
        self._anchor(wall_ms - uptime_ms, uptime_s)
        self._seen_ms = self._reported_ms = wall_ms - uptime_ms
        if last_ms is not None and abs(wall_ms - last_ms) > most_ms:
            self._doubt(last_ms - uptime_ms, uptime_s)
        self.floor_ms = wall_ms if last_ms is None else last_ms

    def note_metadata(self, at_ms: int) -> None:
        """Note an applied metadata batch with its time, by the active controller's clock (0: unknown).

        It shows a node without a time on its disk that its clock went back. It is the only other known clock while the
        active controller's release reports no clocks.
        """
        if not self._asks_others or at_ms <= 0:
            return
        uptime_s, wall_ms = self._uptime_s(), self._wall_clock_ms()
        self._metadata_lead_ms = at_ms - int(uptime_s * 1000)
        if self._state is ClockState.NEW and at_ms - wall_ms > self._most_ms:
            self._doubt(self._metadata_lead_ms, uptime_s)

    def note_others(self, others: OtherClocks | None) -> None:
        """Note the active controller's comparison of the other clocks with the last `reading`; None: its release has
        none.

        It is ignored if the clock has jumped since then.
        """
        self._read_clocks()
        if others is not None and abs(self._seen_ms - self._reported_ms) > MAX_JUMP_MS:
            return
        others = others or self._by_metadata()
        if others is None:
            return
        if others == self._others and self._state is ClockState.BELIEVED and self._others_s is not None:
            self._others_s = self._read_at_s  # as nearly always: every heartbeat reports them
            return
        if not others.are_known:
            return
        before = self.contradiction
        self._others, self._others_s = others, self._read_at_s
        if not others.contradict:
            self._is_overruled = False
        if (self.contradiction is None) is not (before is None):
            self._log_contradiction(others)
        if not others.contradict:
            self._follow(others)

    def _follow(self, others: OtherClocks) -> None:
        """Believe the clock if enough others agree with it and they do not contradict it."""
        match self._state:
            case ClockState.UNCONFIRMED:
                self._believe()
            case ClockState.NEW if others.believing or not others.doubting:
                self._believe()
            case ClockState.DOUBTED if others.confirm:
                jump_ms = self.jump_ms()
                self._believe()
                log.warning("clock_confirmed", jump_ms=jump_ms, by="most of the other brokers")

    def accept(self) -> bool:
        """Believe the wall clock from now on, by an operator's decision; False if it is believed anyway."""
        jump_ms = self.jump_ms()
        if self._may_delete:
            return False
        self._is_overruled = self._others.contradict
        self._believe()
        log.warning("clock_accepted", jump_ms=jump_ms, by="an operator")
        return True

    def _by_metadata(self) -> OtherClocks | None:
        """Compare with the active controller's clock, by the last batch that it wrote."""
        if self._metadata_lead_ms is None:
            return None
        ahead_ms = self._metadata_lead_ms - self._seen_ms
        agrees = abs(ahead_ms) <= MOST_APART_MS
        return OtherClocks(1, 1, agrees, agrees, 0, ahead_ms)

    # -- the clocks --------------------------------------------------------------------------------------------------

    def _read_clocks(self) -> tuple[int, int]:
        """Return the wall clock's time, and the believed time."""
        self._read_at_s = uptime_s = self._uptime_s()
        wall_ms = self._wall_clock_ms()
        uptime_ms = int(uptime_s * 1000)
        lead_ms = wall_ms - uptime_ms
        if self._lead_ms is None:
            self._anchor(lead_ms, uptime_s)
            self._seen_ms = lead_ms
        assert self._lead_ms is not None
        jump_ms, moved_ms = lead_ms - self._lead_ms, lead_ms - self._seen_ms
        self._seen_ms = lead_ms
        if self._state is not ClockState.DOUBTED:
            self._check(jump_ms, lead_ms, uptime_s)
        elif abs(jump_ms) <= self._most_ms:
            self._state = self._before
            self._anchor(lead_ms, uptime_s)
            log.warning("clock_jump_undone")
        elif abs(moved_ms) > MAX_JUMP_MS:
            self._doubt(self._lead_ms, uptime_s)
        elif uptime_s - self._doubted_s >= abs(jump_ms) / 1000 and self._is_backed(uptime_s):
            self._believe()
            log.warning("clock_accepted", jump_ms=jump_ms, by="the time that has passed")
        believed_ms = uptime_ms + self._lead_ms if self._state is ClockState.DOUBTED else wall_ms
        self.floor_ms = believed_ms
        return wall_ms, believed_ms

    def _check(self, jump_ms: int, lead_ms: int, uptime_s: float) -> None:
        """Doubt a clock that left its anchor; move the anchor now and then, as clocks drift."""
        if abs(jump_ms) > MAX_JUMP_MS:
            self._most_ms = MAX_JUMP_MS if self._state is ClockState.BELIEVED else self._most_ms
            self._doubt(lead_ms - jump_ms, uptime_s)
        elif uptime_s - self._anchored_s >= ANCHORED_S:
            self._anchor(lead_ms, uptime_s)

    def _is_backed(self, uptime_s: float) -> bool:
        """Return whether the known others do not contradict a clock that has run for long."""
        if not self._asks_others:
            return True
        is_known = self._others_s is not None and uptime_s - self._others_s <= REPORTED_S
        return is_known and not self._others.contradict

    def _anchor(self, lead_ms: int, uptime_s: float) -> None:
        self._lead_ms, self._anchored_s = lead_ms, uptime_s

    def _doubt(self, lead_ms: int, uptime_s: float) -> None:
        if self._state is not ClockState.DOUBTED:
            self._before = self._state
        self._state = ClockState.DOUBTED
        self._anchor(lead_ms, uptime_s)
        self._doubted_s = uptime_s
        log.error(
            "clock_jumped",
            jump_ms=self._seen_ms - lead_ms,
            at_start=self.was_found_at_start,
            consequence="deletion by age waits",
        )

    def _believe(self) -> None:
        self._state = self._before = ClockState.BELIEVED
        self._anchor(self._seen_ms, self._uptime_s())
        self.on_believed()

    def _log_contradiction(self, others: OtherClocks) -> None:
        if self.contradiction is None:
            log.warning("clocks_agree_again")
            return
        log.error(
            "clocks_disagree",
            others_ahead_ms=others.ahead_ms,
            others=others.reported,
            agreeing=others.agreeing,
            consequence="deletion by age waits",
        )


def read_believed_time(disk: Disk, folder: str) -> int | None:
    """Return the last believed time, None if the disk has none. Raise OSError."""
    path = f"{folder}/{CLOCK_CHECKPOINT}"
    try:
        return decode_time(disk.read_file(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        log.warning("clock_checkpoint_unreadable", path=path, reason=str(error))
        return None


def write_believed_time(disk: Disk, folder: str, believed_ms: int) -> None:
    """Write a believed time durably. Raise OSError."""
    disk.write_file(f"{folder}/{CLOCK_CHECKPOINT}", encode_time(believed_ms))


def encode_time(believed_ms: int) -> bytes:
    """Return the file of a time: version, milliseconds and checksum, a line each."""
    body = f"0\n{believed_ms}\n"
    return f"{body}{crc32c(body.encode()):08x}\n".encode()


def decode_time(file_bytes: bytes) -> int:
    """Return the time in a file. ValueError unless the file is whole."""
    number = file_bytes.decode("ascii").split("\n")[1:2]
    if not number or encode_time(int(number[0])) != file_bytes:
        raise ValueError("not a time of version 0, or its checksum does not match")
    return int(number[0])


def _nothing() -> None:
    pass
