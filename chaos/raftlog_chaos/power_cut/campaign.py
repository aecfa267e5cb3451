"""Cuts on one disk, in turn: boot, read everything, judge, use, cut, and boot again.

A cut is judged by the next boot that gets as far as to read. A cut with a successor that falls into that boot's
recovery is judged together with it. A finding ends the campaign, and the disk is kept.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from raftlog.base.disk import write_file
from raftlog.testing.progress import Stalled, Wait, patient, signs_of_descendants
from raftlog_chaos.checkers.verdict import Verdict
from raftlog_chaos.power_cut.book import GAP_NS, Book
from raftlog_chaos.power_cut.image import FILE_SYSTEMS, make_image, repair_image
from raftlog_chaos.power_cut.kernel import Guest, free_base
from raftlog_chaos.power_cut.loads import BETWEEN_SNAPSHOTS, BYTES_BETWEEN_SNAPSHOTS, SETTINGS
from raftlog_chaos.power_cut.moments import RECOVERY, Moment, Sight, draw
from raftlog_chaos.power_cut.words import GAVE_UP, PLAN, BootPlan, Mark, Reached, Word

DISK: Final = "disk.img"
FINDING_S: Final = 120.0
"""A boot with a finding goes on for so long at most, to find other errors."""
ENDS: Final = frozenset({"loading", GAVE_UP})
"""Phases that complete the check of the earlier cuts."""
HEAR_S: Final = 0.2
FIRST_START_S: Final = 10.0
"""The assumed time of a start, before any was measured."""
GUEST_STALL_S: Final = 40.0
HOST_STALL_S: Final = 120.0
"""A guest without output and CPU use for so long hangs; it gives up its own waits before."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options that all disks share. `settings` are the nodes', besides the settings of the loads."""

    out: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    mount: str = ""
    plant: str = ""
    """module:function of a planted bug."""
    kind: str = ""
    """The only kind of moment."""


class Cut(msgspec.Struct, kw_only=True):
    """One cut, and what the boot after it found."""

    number: int
    file_system: str
    kind: str
    moment: str
    missed: bool = False
    """Its mark never came: it was a cut under load."""
    acked: int = 0
    """So many records had been acknowledged by then, and `commits` of groups."""
    commits: int = 0
    boot_s: float = 0.0
    ready_s: float = 0.0
    """The time from the start of the next boot until the cluster was ready. `read_s`: until everything was read."""
    read_s: float = 0.0
    judged_with: int = 0
    """The number of the cut that it was judged with: itself, or a cut that fell into its recovery."""
    found: list[str] = []


class Campaign:
    """Some cuts on one disk. `report` gets a line for each cut that was judged."""

    def __init__(
        self, options: Options, file_system: str, *, seed: int, first: int, report: Callable[[str], None]
    ) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        self.folder = options.out / f"{stamp}-{file_system}-seed{seed}"
        self.folder.mkdir(parents=True)
        self.cuts: list[Cut] = []
        self.book = Book(self.folder, file_system=file_system, seed=seed)
        self.verdicts: dict[str, Verdict] = {}
        self._options = options
        self._file_system = file_system
        self._seed = seed
        self._first = first
        self._report = report
        self._chance = random.Random(f"{seed}/{file_system}")
        between = {BETWEEN_SNAPSHOTS: self._chance.choice(BYTES_BETWEEN_SNAPSHOTS)}
        self._settings = {**SETTINGS, **between, **options.settings}
        self._boots = 0
        self._start_s = FIRST_START_S
        self._found_at = 0.0
        self._reached: dict[str, float] = {}

    @property
    def failed(self) -> bool:
        return any(each.found for each in self.cuts)

    def run(self, count: int) -> list[Cut]:
        """Cut so often, or until something is found; returns the cuts. Raises Unavailable."""
        disk = self.folder / DISK
        make_image(disk, self._file_system)
        try:
            while len(self.cuts) < count and not self.failed:
                self._cut(self._draw())
            if not self.failed:
                self._cut(None)
        finally:
            self.book.close()
            self._write()
            if not self.failed:
                disk.unlink()
        return self.cuts

    def _draw(self) -> Moment:
        first = not self.cuts
        while True:
            moment = draw(self._chance, first=first)
            if self._options.kind in ("", moment.kind) or (first and self._options.kind == RECOVERY):
                return moment

    # -- one boot

    def _cut(self, moment: Moment | None) -> None:
        """Boot, and cut at that moment; None: only check the result of the cuts before it."""
        guest = self._boot()
        sight = Sight(moment, start_s=self._start_s) if moment else None
        words, self._reached = 0, {}
        wait = Wait("the guest goes on", seen=lambda: words, signs=signs_of_descendants, stall_s=HOST_STALL_S)
        try:
            while not self._is_due(guest, None if self.failed else sight):  # all that is lost is to be seen
                heard = guest.hear(self._patience_s(sight))
                words += len(heard)
                self._take(heard, sight)
                wait.pause()
        except Stalled as error:
            self._blame([str(error)])
        finally:
            for word in guest.cut():
                self._take_last(word)
        if self.failed:
            self._report(line_of(self.cuts[-1]))
        elif moment is not None:
            self._note_cut(moment, missed=bool(sight and sight.missed))

    def _boot(self) -> Guest:
        if self._boots:
            repair_image(self.folder / DISK, self._file_system)
        source = Path(__file__).parents[3]
        needed = [sys.prefix, sys.base_prefix, sys.executable, *sys.path, str(source), str(self.folder)]
        plan = BootPlan(
            boot=self._boots,
            seed=self._seed,
            file_system=self._file_system,
            options=self._options.mount or FILE_SYSTEMS[self._file_system].options,
            base=free_base(each for each in needed if each),
            folder=str(self.folder.resolve()),
            first_ns=self.book.last_ns + GAP_NS,
            settings=self._settings,
            loads=self.book.loads,
            committed=self.book.committed,
            changed=self.book.changed,
            stall_s=GUEST_STALL_S,
        )
        path = self.folder.resolve() / PLAN
        write_file(path, msgspec.json.format(msgspec.json.encode(plan)))
        self._boots += 1
        return Guest(self.folder.resolve(), (self.folder / DISK).resolve(), path, self._variables(source))

    def _variables(self, source: Path) -> dict[str, str]:
        if not self._options.plant:
            return {}
        planted = Path(__file__).with_name("planted")
        return {"POWER_CUT_PLANT": self._options.plant, "PYTHONPATH": f"{planted}:{source}"}

    def _is_due(self, guest: Guest, sight: Sight | None) -> bool:
        if guest.over:
            self._blame([f"the guest ended by itself: see {self.folder / 'console.log'}"])
            return True
        if sight is None:
            since_s = time.monotonic() - self._found_at if self.failed else 0.0
            return bool(ENDS & self._reached.keys()) or since_s > patient(FINDING_S)
        left_s = sight.wait_s(time.monotonic())
        return left_s is not None and left_s <= 0

    @staticmethod
    def _patience_s(sight: Sight | None) -> float:
        left_s = sight.wait_s(time.monotonic()) if sight else None
        return HEAR_S if left_s is None else min(max(left_s, 0.0), HEAR_S)

    def _take(self, heard: Sequence[Word], sight: Sight | None) -> None:
        for word in heard:
            self.book.take(word)
            if sight:
                sight.acknowledged(self.book.acked, time.monotonic())
            if isinstance(word, Mark) and sight:
                sight.marked(word.name, time.monotonic())
            elif isinstance(word, Reached):
                self._note_phase(word)
                if sight:
                    sight.reached(word.phase, time.monotonic())
        if self.book.found:
            self._blame(self.book.take_found())

    def _take_last(self, word: Word) -> None:
        self.book.take(word)
        if self.book.found:
            self._blame(self.book.take_found())

    def _note_phase(self, word: Reached) -> None:
        self._reached[word.phase] = word.seconds
        if word.phase == "ready":
            self._start_s = word.seconds - self._reached["started"]
        elif word.phase == "read":
            self._judge()

    # -- what is found

    def _note_cut(self, moment: Moment, *, missed: bool) -> None:
        cut = Cut(
            number=self._first + len(self.cuts),
            file_system=self._file_system,
            kind=moment.kind,
            moment=str(moment),
            missed=missed,
            acked=self.book.acked,
            commits=self.book.commits,
        )
        self.cuts.append(cut)

    def _judge(self) -> None:
        """Judge the cuts before this boot, which has read everything."""
        if not self.cuts:
            return
        self.verdicts = self.book.judge()
        faults = [f"{name}: {each}" for name, verdict in self.verdicts.items() for each in verdict.faults()]
        for each in self._unjudged():
            each.judged_with = self.cuts[-1].number
        last, reached = self.cuts[-1], self._reached
        last.boot_s = reached["started"]
        last.ready_s = reached["ready"] - reached["started"]
        last.read_s = reached["read"] - reached["ready"]
        self._blame(faults)
        if not self.failed:
            self._report(line_of(last))

    def _unjudged(self) -> list[Cut]:
        return [each for each in self.cuts if not each.judged_with]

    def _blame(self, found: list[str]) -> None:
        if not found:
            return
        if not self.failed:
            self._found_at = time.monotonic()
        if not self.cuts:  # before the first cut: there is no cut to blame
            self._note_cut(Moment("none"), missed=False)
        self.cuts[-1].found += found

    def _write(self) -> None:
        write_file(self.folder / "cuts.json", msgspec.json.format(msgspec.json.encode(self.cuts), indent=1))
        text = "\n\n".join(f"# {name}\n{verdict.text()}" for name, verdict in self.verdicts.items())
        found = "\n".join(text for cut in self.cuts for text in cut.found)
        write_file(self.folder / "verdict.txt", f"{found}\n\n{text}\n" if found else f"{text}\n")


def line_of(cut: Cut) -> str:
    """Return a line for a cut, for people."""
    outcome = f"FOUND {cut.found[0]}" if cut.found else "all there"
    return (
        f"cut {cut.number:3} {cut.file_system:5} {cut.kind:10} ({cut.moment}{', missed' if cut.missed else ''}):"
        f" {cut.acked:,} records and {cut.commits:,} commits acknowledged; ready {cut.ready_s:.1f} s,"
        f" read {cut.read_s:.1f} s; {outcome}"
    )
