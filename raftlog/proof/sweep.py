"""Runs many seeds of the endurance story: `python -m raftlog.proof.sweep --seeds 0..99`. Exits 1 if any failed.

Each failure prints the line that replays it; `--log` shows what the nodes say, `--trace` the last steps.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from raftlog.base.log import configure_log
from raftlog.proof.simulator.hosts import current_process
from raftlog.proof.simulator.loop import START_S
from raftlog.proof.stories import endurance

QUIET = "error"


class VirtualLog:
    """A stream that puts virtual seconds and the host in the place of each line's wall time."""

    def write(self, line: str) -> None:
        process = current_process.get(None)
        if process is not None and line.strip():
            _, _, event = line.partition(" ")
            line = f"{process.host.loop.time() - START_S:10.5f} {process.host.name:7} {event}"
        sys.stdout.write(line)

    def flush(self) -> None:
        sys.stdout.flush()

    def isatty(self) -> bool:
        return False


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds that the command line names; 0 if all went well."""
    parser = argparse.ArgumentParser(prog="python -m raftlog.proof.sweep", description=__doc__)
    parser.add_argument("--seeds", default="0..9", help="one seed, or the first and last: A..B")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each storm, virtual seconds")
    parser.add_argument("--log", action="store_true", help="print the nodes' log")
    options = parser.parse_args(arguments)
    configure_log(level="info" if options.log else QUIET, format="console", stream=VirtualLog())
    first, _, last = options.seeds.partition("..")
    failed = 0
    for seed in range(int(first), int(last or first) + 1):
        failed += not _run(seed, options.seconds)
    return 1 if failed else 0


def _run(seed: int, seconds: float) -> bool:
    began_at = time.perf_counter()
    try:
        run = endurance.run(seed, seconds)
    except Exception as error:
        print(f"seed {seed} FAILED: {str(error)[:2000] or type(error).__name__}")  # noqa: T201
        if not isinstance(error, AssertionError):
            traceback.print_exc()
        print(f"  replay: python -m raftlog.proof.sweep --seeds {seed} --seconds {seconds} --log", flush=True)  # noqa: T201
        return False
    took = time.perf_counter() - began_at
    print(  # noqa: T201
        f"seed {seed} ok {run.digest[:8]} {run.seconds:.1f} s in {took:.1f} s, {run.steps} steps, {run.result}",
        flush=True,
    )
    return True


if __name__ == "__main__":
    sys.exit(main())
