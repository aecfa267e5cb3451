"""Compares raftlog with Apache Kafka.

`diff` runs histories on both, `record` writes Kafka's answers to files, `recorded` compares raftlog with these files.
`list` prints the histories, and `page` the page about what differs. `generated` runs histories that are drawn by chance
on both: a seed and a number make the same history on every machine.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence

from raftlog_chaos.compare.systems.system import Failed, Missing
from raftlog_chaos.conformance import known
from raftlog_chaos.conformance.generation.hunt import JOBS, Drawn, hunt
from raftlog_chaos.conformance.history import choose
from raftlog_chaos.conformance.page import page
from raftlog_chaos.conformance.run import compare_live, compare_recorded, print_lines, record


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(
        prog="raftlog_chaos.conformance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("act", choices=("diff", "record", "recorded", "list", "page", "generated"))
    made.add_argument(
        "--only", default="", help="subjects or histories, with commas between: produce,fetch/*"
    )
    made.add_argument("--strict", action="store_true", help="fail for differences that are listed as open")
    made.add_argument("--story", action="store_true", help="print every history, not only those that differ")
    drawn = made.add_argument_group("generated")
    drawn.add_argument("--seed", type=int, default=1, help="what histories are drawn from")
    drawn.add_argument("--count", type=int, default=200, help="how many histories")
    drawn.add_argument("--first", type=int, default=0, help="the number of the first one")
    drawn.add_argument("--seconds", type=float, default=0.0, help="begin no history after that time")
    drawn.add_argument("--jobs", type=int, default=JOBS, help="how many run at once")
    drawn.add_argument("--steps", default="", help="play these steps of the history --first alone: 0,3,4")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns 1 if something differs that is not listed."""
    options = parser().parse_args(arguments)
    try:
        if options.act == "generated":
            return hunt(_drawn(options), steps=[int(each) for each in options.steps.split(",") if each])
        chosen = choose(options.only)
        if options.act == "list":
            print_lines(*(f"{each.label}: {each.claim}" for each in chosen))
            return 0
        if options.act == "page":
            sys.stdout.write(page(known.load_by_subject()))
            return 0
        if options.act == "record":
            return record(chosen, date=datetime.datetime.now(tz=datetime.UTC).date().isoformat())
        compare = compare_live if options.act == "diff" else compare_recorded
        return compare(chosen, strict=options.strict, all_stories=options.story)
    except (ValueError, Missing, Failed) as error:
        sys.stderr.write(f"raftlog_chaos.conformance: {error}\n")
        return 2


def _drawn(options: argparse.Namespace) -> Drawn:
    return Drawn(options.seed, options.count, options.first, options.seconds, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
