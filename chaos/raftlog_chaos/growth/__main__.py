"""`python -m raftlog_chaos.growth`: count the curves, print them with their laws, and exit with 1 if a law is broken.

`--large`: up to 100,000 partitions and 100 brokers for the control plane, 10,000 partitions and groups for whole nodes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from raftlog.base.log import configure_log
from raftlog_chaos.growth import laws
from raftlog_chaos.growth.laws import Curve


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if a law is broken."""
    parser = argparse.ArgumentParser(prog="python -m raftlog_chaos.growth", description=__doc__)
    parser.add_argument("--large", action="store_true", help="the large sizes, which take minutes")
    parser.add_argument("--only", choices=("control", "nodes", "processes"), help="one part")
    options = parser.parse_args(arguments)
    configure_log(level="error", format="console", stream=sys.stderr)
    began_at = time.monotonic()
    curves: list[Curve] = []
    if options.only in (None, "control"):
        control = (laws.MANY_PARTITIONS, laws.MANY_BROKERS)
        curves += laws.control_curves(*(control if options.large else (laws.PARTITIONS, laws.BROKER_COUNTS)))
    if options.only in (None, "nodes"):
        nodes = (laws.MANY_NODE_PARTITIONS, laws.MANY_GROUPS)
        curves += laws.node_curves(*(nodes if options.large else (laws.NODE_PARTITIONS, laws.GROUPS)))
    if options.only == "processes" or (options.large and options.only is None):
        processes = (laws.MANY_PROCESS_PARTITIONS, laws.MANY_PROCESSES)
        curves += laws.process_curves(
            *(processes if options.large else (laws.PROCESS_PARTITIONS, laws.PROCESSES))
        )
    lines = [*as_table(curves), f"counted in {time.monotonic() - began_at:.0f} s"]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(not all(each.is_lawful() for each in curves))


def as_table(curves: Sequence[Curve]) -> list[str]:
    """Return a line of Markdown for each curve, below two of a header."""
    lines = ["| what | as these grow | law | counted | |", "|---|---|---|---|---|"]
    for each in curves:
        points = ", ".join(f"{size:,}: {count:,.0f}" for size, count in each.points)
        verdict = "holds" if each.is_lawful() else "BROKEN"
        lines.append(f"| {each.name}, {each.unit} | {each.grows} | {each.law} | {points} | {verdict} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
