"""`python -m raftlog_chaos.turns`: time the largest request of every API and route, and print the longest turns.

It exits with 1 if a callback of the event loop computes for longer than the limit. A request beyond it is sent three
times more, within ten seconds, and its shortest time counts, so that a busy machine does not count. `--only METADATA`
or `--only /v1/health` asks some. `--sample` asks for a tenth, of a node that holds little.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from raftlog_chaos.turns.report import as_lines
from raftlog_chaos.turns.rows import LEFT_OUT, ONE_DECISION, SAMPLE, Scope, measure


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if a turn is too long or a request has no answer."""
    parser = argparse.ArgumentParser(prog="python -m raftlog_chaos.turns", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="requests with this in their name"
    )
    parser.add_argument("--sample", action="store_true", help="some seconds: a tenth of the parts")
    options = parser.parse_args(arguments)
    rows = measure((SAMPLE if options.sample else Scope())._replace(only=options.only))
    known = [f"not timed: {what}: {why}" for what, why in {**ONE_DECISION, **LEFT_OUT}.items()]
    sys.stdout.write("\n".join([*as_lines(rows), *known]) + "\n")
    return int(any(each.has_failed for each in rows))


if __name__ == "__main__":
    sys.exit(main())
