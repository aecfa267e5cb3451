"""Compares raftlog with Apache Kafka.

`diff` runs histories on both, `record` writes Kafka's answers to files, `recorded` compares raftlog with these files.
`list` prints the histories, and `page` the page about what differs.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence

from raftlog_chaos.compare.systems.system import Failed, Missing
from raftlog_chaos.conformance import known
from raftlog_chaos.conformance.history import choose
from raftlog_chaos.conformance.page import page
from raftlog_chaos.conformance.run import compare_live, compare_recorded, record, say


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(
        prog="raftlog_chaos.conformance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("act", choices=("diff", "record", "recorded", "list", "page"))
    made.add_argument(
        "--only", default="", help="subjects or histories, with commas between: produce,fetch/*"
    )
    made.add_argument("--strict", action="store_true", help="fail for differences that are listed as open")
    made.add_argument("--story", action="store_true", help="print every history, not only those that differ")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns 1 if something differs that is not listed."""
    options = parser().parse_args(arguments)
    try:
        chosen = choose(options.only)
        if options.act == "list":
            say(*(f"{each.label}: {each.claim}" for each in chosen))
            return 0
        if options.act == "page":
            sys.stdout.write(page(known.load()))
            return 0
        if options.act == "record":
            return record(chosen, date=datetime.datetime.now(tz=datetime.UTC).date().isoformat())
        compare = compare_live if options.act == "diff" else compare_recorded
        return compare(chosen, strict=options.strict, all_stories=options.story)
    except (ValueError, Missing, Failed) as error:
        sys.stderr.write(f"raftlog_chaos.conformance: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
