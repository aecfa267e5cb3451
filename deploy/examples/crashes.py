"""Let each program die before and after its commit, start it again, and count: `python deploy/examples/crashes.py`."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from secrets import token_hex

from shop import AFTER_COMMIT, BEFORE_COMMIT, ORDERS, parser, topics_at

PROGRAMS = ("at_most_once", "at_least_once", "exactly_once")
MOMENTS = (BEFORE_COMMIT, AFTER_COMMIT)
PATIENCE_S = 60
COLUMN = "{:18}{:26}{}"


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program that lies next to this one, to its end."""
    path = Path(__file__).with_name(f"{program}.py")
    return subprocess.run(
        [sys.executable, str(path), *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def succeed(program: str, *words: str) -> str:
    """Return what a program printed. It must end well."""
    ended = run(program, *words)
    if ended.returncode:
        raise SystemExit(f"{program}.py ended with {ended.returncode}: {ended.stdout}{ended.stderr}")
    return ended.stdout.strip()


def outcome(asked: argparse.Namespace, program: str, moment: str) -> str:
    """Return what a crash at this moment leaves behind: `neither`, or how many receipts are missing or doubled."""
    name = f"{asked.orders}-{program}-{moment}"
    where = ("-b", asked.bootstrap, "--orders", asked.orders)
    words = (*where, "--receipts", name, "--group", name)
    died = run(program, *words, "--crash", moment)
    if died.returncode != -signal.SIGKILL:
        raise SystemExit(f"{program}.py did not die {moment}: {died.stdout}{died.stderr}")
    succeed(program, *words)
    counts = succeed("compare", name, *where).split(": ")[1].split(", ")
    return ", ".join(each for each in counts if not each.startswith("0 ")) or "neither"


def main() -> None:
    words = parser("What a crash leaves behind, by delivery semantics.")
    words.add_argument(
        "--orders", default=f"{ORDERS}-{token_hex(3)}", help="topic for the orders [a new one]"
    )
    words.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"{', '.join(PROGRAMS)} [all]")
    asked = words.parse_args()
    if unknown := set(asked.programs) - set(PROGRAMS):
        words.error(f"there is no {', '.join(sorted(unknown))}: choose from {', '.join(PROGRAMS)}")
    topics_at(asked.bootstrap)
    succeed("orders", "-b", asked.bootstrap, "--orders", asked.orders)
    cases = list(product(asked.programs or PROGRAMS, MOMENTS))
    with ThreadPoolExecutor(len(cases)) as pool:
        found = dict(zip(cases, pool.map(lambda case: outcome(asked, *case), cases), strict=True))
    print(COLUMN.format("", "crash before the commit", "crash after the commit"))
    for program in asked.programs or PROGRAMS:
        print(COLUMN.format(f"{program}.py", *(found[program, moment] for moment in MOMENTS)))


if __name__ == "__main__":
    main()
