"""Runs everything, one part after the other: `make nightly`. It goes on after a failure, and ends with a table.

Each part is a target of the Makefile, or a slice of its work; PARTS="demo sim" runs some. A part that needs a tool
which this machine lacks is reported as not run, which is no failure. The output of a part is printed as it comes, and
kept in a file under --out.

All parts take a night, and with --long some days. Each part that ends is a line of `ledger.jsonl` there, with its
commit, and PARTS=--rest runs only what has not passed on this commit. The table shows the newest outcome of every part.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Part(NamedTuple):
    """A target, what it needs on the PATH, and variables for a night, or for what takes hours (`long`).

    `slice`: this part does a share of the target's work, so that a night that ends early keeps the other shares.
    """

    target: str
    needs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    long: tuple[str, ...] = ()
    slice: int = 0

    @property
    def name(self) -> str:
        """The target, and the number of the slice."""
        return f"{self.target}-{self.slice}" if self.slice else self.target


def _sliced_seeds(target: str, slices: int, seeds: int, long_seeds: int) -> tuple[Part, ...]:
    """Return slices of so many seeds each, which are the first seeds of the long form's slices."""
    return tuple(
        Part(
            target,
            variables=(f"SIM=--seeds {first}..{first + seeds - 1} --keep-going",),
            long=(f"SIM=--seeds {first}..{first + long_seeds - 1} --keep-going",),
            slice=number + 1,
        )
        for number in range(slices)
        for first in [1 + number * long_seeds]
    )


def _sliced_frames(slices: int, chunks: int, long_chunks: int) -> tuple[Part, ...]:
    """Return slices of so many chunks of frames each, as `raftlog fuzz --first` counts them."""
    return tuple(
        Part(
            "fuzz",
            variables=(f"FRAMES={chunks * FRAMES_IN_CHUNK}", f"FUZZ=--first {number * long_chunks}"),
            long=(f"FRAMES={long_chunks * FRAMES_IN_CHUNK}", f"FUZZ=--first {number * long_chunks}"),
            slice=number + 1,
        )
        for number in range(slices)
    )


FRAMES_IN_CHUNK: Final = 20_000
EVERY_TEST = (
    "TEST=--on-disk --hypothesis-profile nightly -m 'not (spark or spark_kafka or tables or interop)'"
)
PARTS = (
    Part("lint"),
    Part("newest"),
    Part("test", variables=(EVERY_TEST, "LARGE_REQUEST_PARTS=50000")),
    Part("reversed"),
    Part("demo"),
    Part("docs"),
    Part("wheel"),
    *_sliced_seeds("sim", slices=3, seeds=50, long_seeds=200),
    *_sliced_seeds("sim-scenarios", slices=3, seeds=6, long_seeds=100),
    Part("planted"),
    Part("chaos", variables=("CHAOS=--suite full",)),
    Part(
        "power-cut",
        needs=("linux.uml", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"),
        variables=("POWER_CUT=--cuts 10",),
        long=("POWER_CUT=--cuts 500",),
    ),
    Part("api"),
    Part("turns"),
    Part("attack"),
    *_sliced_frames(slices=10, chunks=10, long_chunks=100),
    Part("fuzz-live", variables=("FRAMES=400000",), long=("FRAMES=2000000",)),
    Part("slow"),
    Part("celery-test"),
    Part("frameworks-test", needs=("java",)),
    Part("table-test"),
    Part("console-test", needs=("chromium",)),
    Part("interop-groups", variables=("RAFTLOG_SLOW_SECONDS=120",), long=("RAFTLOG_SLOW_SECONDS=600",)),
    Part(
        "interop-go",
        needs=("go",),
        variables=("RAFTLOG_SOAK_SECONDS=300",),
        long=("RAFTLOG_SOAK_SECONDS=3600",),
    ),
    Part("interop-java", needs=("java", "mvn")),
    Part("kafka-diff", needs=("java", "mvn")),
    Part(
        "kafka-generated",
        needs=("java", "mvn"),
        variables=("GENERATED=--seed 1 --count 20000 --seconds 240 --jobs 6",),
        long=("GENERATED=--seed 1 --count 20000 --seconds 1200 --jobs 6",),
    ),
    Part("test-spark", needs=("java",)),
    Part("interop-spark", needs=("java", "mvn")),
    Part("pipeline-demo", needs=("java",)),
    Part("compose-test", needs=("docker",)),
    Part("helm-test", needs=("go",)),
    Part("kubernetes-test", needs=("go", "ip", "nft")),
    Part("growth", variables=("GROWTH=--large",)),
    Part("bench"),
    Part("compare", variables=("COMPARE=--short",)),
)


class Result(NamedTuple):
    """How a part ended, and when. `commit` is empty if tracked files differed from it."""

    name: str
    outcome: str
    seconds: float
    said: str = ""
    commit: str = ""
    ended: str = ""
    variables: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether it ran without a failure."""
        return self.outcome == PASSED


PASSED: Final = "passed"
_NOT_TEXT: Final = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]|[^\x20-\x7e]")
"""Colours, and what is not ASCII."""


def run(part: Part, out: Path, folder: Path = ROOT) -> Result:
    """Run a target of that folder's Makefile, print what it says, and keep that in a file."""
    if lacks := missing(part):
        return Result(part.name, lacks, 0.0)
    command = ["make", "--no-print-directory", part.target, *part.variables]
    if subprocess.run([*command, "--dry-run"], cwd=folder, capture_output=True, check=False).returncode:
        return Result(part.name, "not run: there is no such target", 0.0)
    print(f"=== {part.name}", flush=True)
    began, commit, said = time.monotonic(), head(folder), ""
    with (out / f"{part.name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
            said = as_said(line) or said
    code = process.wait()
    return Result(
        part.name,
        PASSED if code == 0 else f"FAILED (exit code {code})",
        time.monotonic() - began,
        said,
        commit=commit if commit == head(folder) else "",
        ended=time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        variables=part.variables,
    )


def missing(part: Part) -> str:
    """Return the outcome of a part that this machine lacks a program for, otherwise an empty string."""
    lacked = [each for each in part.needs if shutil.which(each) is None]
    return f"not run: there is no {' and no '.join(lacked)} here" if lacked else ""


def as_said(line: bytes) -> str:
    """Return a line of output as text if it may be a summary: it has a number and a word, and is not make's."""
    text = _NOT_TEXT.sub(b"", line).decode().strip("= ")
    is_summary = re.search(r"\d", text) and re.search(r"[a-z]{2}", text) and not text.startswith("make")
    return text[:100] if is_summary else ""


def head(folder: Path = ROOT) -> str:
    """Return the commit that a folder has checked out, or an empty string if tracked files differ from it."""
    if _git(folder, "status", "--porcelain", "--untracked-files=no") != "":
        return ""
    return (_git(folder, "rev-parse", "HEAD") or "").strip()


def _git(folder: Path, *arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


class Ledger:
    """The results of all nights, in the order in which they ended."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, result: Result) -> None:
        """Append a result. A part that was not run leaves its last result as it was."""
        if result.outcome.startswith("not run"):
            return
        with self._path.open("a") as file:
            file.write(json.dumps(result._asdict()) + "\n")

    def newest(self) -> dict[str, Result]:
        """Return the last result of each part, by name; the part that ended last comes last."""
        found: dict[str, Result] = {}
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for line in lines:
            fields = json.loads(line)
            result = Result(**{**fields, "variables": tuple(fields["variables"])})
            found.pop(result.name, None)
            found[result.name] = result
        return found

    def rest(self, parts: Sequence[Part], commit: str) -> list[Part]:
        """Return the parts that have not passed on a commit as they are now, the oldest result first."""
        newest = self.newest()
        order = list(newest)
        todo = [
            each
            for each in parts
            if not commit
            or (last := newest.get(each.name)) is None
            or (last.outcome, last.commit, last.variables) != (PASSED, commit, each.variables)
        ]
        return sorted(todo, key=lambda part: order.index(part.name) if part.name in newest else -1)


def as_table(results: Sequence[Result]) -> list[str]:
    """Return a line for each part, and a total."""
    width = max((len(each.outcome) for each in results), default=0)
    lines = [f"{each.name:15} {each.outcome:{width}} {_clock(each.seconds):>9}" for each in results]
    failed = sum(each.outcome.startswith("FAILED") for each in results)
    ran = sum(not each.outcome.startswith(("not run", "never run")) for each in results)
    seconds = sum(each.seconds for each in results)
    return [*lines, f"{'all':15} {f'{failed} of {ran} failed':{width}} {_clock(seconds):>9}"]


def as_summary(parts: Sequence[Part], newest: dict[str, Result], folder: Path = ROOT) -> list[str]:
    """Return the table of every part's newest result, each with its commit, how old that is, and what it said."""
    never = [Result(each.name, missing(each) or "never run", 0.0) for each in parts]
    results = [newest.get(each.name, each) for each in never]
    commit = head(folder)
    *lines, total = as_table(results)
    told = [
        f"{line}  {each.ended:16}  {each.commit[:8] or '-':8}  {_age(folder, each, commit):18}  {each.said}"
        for line, each in zip(lines, results, strict=True)
    ]
    here = sum(each.passed and each.commit == commit != "" for each in results)
    return [*map(str.rstrip, told), f"{total}  {here} of {len(parts)} passed on {commit[:8] or 'a commit'}"]


def _age(folder: Path, result: Result, commit: str) -> str:
    """Say how many files of the program and of its simulator changed since a result."""
    if not result.ended or (result.commit == commit and commit):
        return ""
    changed = (
        _git(folder, "diff", "--name-only", result.commit, "--", "raftlog", "chaos")
        if result.commit
        else None
    )
    return "of no known commit" if changed is None else f"{len(changed.splitlines())} files changed"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def main() -> int:
    """Run the parts; returns 1 if one failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = dict.fromkeys(name for each in PARTS for name in (each.target, each.name))
    parser.add_argument(
        "parts", nargs="*", choices=[*names, []], metavar="PART", help=f"default: all of {' '.join(names)}"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "nightly-runs", help="where what they print is kept"
    )
    parser.add_argument(
        "--long", action="store_true", help="more seeds, frames and power cuts, for some days"
    )
    parser.add_argument("--rest", action="store_true", help="only what has not passed on this commit")
    parser.add_argument(
        "--summary", action="store_true", help="run nothing, print the newest outcome of each part"
    )
    given = parser.parse_args()
    every = [each._replace(variables=each.long or each.variables) if given.long else each for each in PARTS]
    parts = [each for each in every if not given.parts or {each.target, each.name} & {*given.parts}]
    ledger = Ledger(given.out / "ledger.jsonl")
    if given.summary:
        print(*as_summary(parts, ledger.newest()), sep="\n")
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    out = Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=given.out))
    results: list[Result] = []
    try:
        for part in ledger.rest(parts, head()) if given.rest else parts:
            results.append(run(part, out))
            ledger.add(results[-1])
    except KeyboardInterrupt:
        results.append(Result("...", "FAILED (interrupted)", 0.0))
    table = [*as_table(results), "=== the newest of each part", *as_summary(every, ledger.newest())]
    (out / "summary.txt").write_text("\n".join(table) + "\n")
    print(f"=== what they print is in {out}", *table, sep="\n")
    return int(any(each.outcome.startswith("FAILED") for each in results))


if __name__ == "__main__":
    sys.exit(main())
