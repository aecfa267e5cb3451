"""Runs everything, one part after the other: `make nightly`. It goes on after a failure, and ends with a table.

Each part is a target of the Makefile; PARTS="demo sim" runs some. A part that needs a tool which this machine lacks is
reported as not run, which is no failure. The output of a part is printed as it comes, and kept in a file under --out.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Part(NamedTuple):
    """A target, what it needs on the PATH, and variables that make it do all it can, or what takes hours (`long`)."""

    target: str
    needs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    long: tuple[str, ...] = ()


SIM_SEEDS = "--seeds 1..600 --keep-going"
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
    Part("sim", variables=(f"SIM={SIM_SEEDS}",)),
    Part("sim-scenarios"),
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
    Part("fuzz", variables=("FRAMES=20000000",)),
    Part("fuzz-live", variables=("FRAMES=2000000",)),
    Part("slow"),
    Part("celery-test"),
    Part("table-test"),
    Part("console-test", needs=("chromium",)),
    Part("interop-groups", variables=("RAFTLOG_SLOW_SECONDS=600",)),
    Part("interop-go", needs=("go",), variables=("RAFTLOG_SOAK_SECONDS=3600",)),
    Part("interop-java", needs=("java", "mvn")),
    Part("kafka-diff", needs=("java", "mvn")),
    Part(
        "kafka-generated",
        needs=("java", "mvn"),
        variables=("GENERATED=--seed 1 --count 20000 --seconds 1200 --jobs 6",),
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
    """How a part ended."""

    name: str
    outcome: str
    seconds: float


def run(part: Part, out: Path, folder: Path = ROOT) -> Result:
    """Run a target of that folder's Makefile, print what it says, and keep that in a file."""
    missing = [each for each in part.needs if shutil.which(each) is None]
    if missing:
        return Result(part.target, f"not run: there is no {' and no '.join(missing)} here", 0.0)
    command = ["make", "--no-print-directory", part.target, *part.variables]
    if subprocess.run([*command, "--dry-run"], cwd=folder, capture_output=True, check=False).returncode:
        return Result(part.target, "not run: there is no such target", 0.0)
    print(f"=== {part.target}", flush=True)
    began = time.monotonic()
    with (out / f"{part.target}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
    code = process.wait()
    return Result(
        part.target, "passed" if code == 0 else f"FAILED (exit code {code})", time.monotonic() - began
    )


def as_table(results: Sequence[Result]) -> list[str]:
    """Return a line for each part, and a total."""
    width = max((len(each.outcome) for each in results), default=0)
    lines = [f"{each.name:15} {each.outcome:{width}} {_clock(each.seconds):>9}" for each in results]
    failed = sum(each.outcome.startswith("FAILED") for each in results)
    ran = sum(not each.outcome.startswith("not run") for each in results)
    seconds = sum(each.seconds for each in results)
    return [*lines, f"{'all':15} {f'{failed} of {ran} failed':{width}} {_clock(seconds):>9}"]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def main() -> int:
    """Run the parts; returns 1 if one failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = {each.target: each for each in PARTS}
    parser.add_argument("parts", nargs="*", choices=[*known, []], help="default: all")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "nightly-runs", help="where what they print is kept"
    )
    parser.add_argument(
        "--long", action="store_true", help="500 power cuts, which take five hours, and not ten"
    )
    given = parser.parse_args()
    out = given.out / time.strftime("%Y%m%d-%H%M%S")
    out.mkdir(parents=True)
    results: list[Result] = []
    try:
        for name in given.parts or known:
            part = known[name]
            results.append(
                run(part._replace(variables=part.long or part.variables) if given.long else part, out)
            )
    except KeyboardInterrupt:
        results.append(Result("...", "FAILED (interrupted)", 0.0))
    table = as_table(results)
    (out / "summary.txt").write_text("\n".join(table) + "\n")
    print(f"=== what they print is in {out}", *table, sep="\n")
    return int(any(each.outcome.startswith("FAILED") for each in results))


if __name__ == "__main__":
    sys.exit(main())
