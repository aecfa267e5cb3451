"""Long histories, and what judging them costs: `python -m tests.chaos.checkers.scale --operations 1000000`."""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from raftlog_chaos.checkers import Verdict, judge
from raftlog_chaos.history import Header, HistoryFile, StoredHistory
from tests.chaos.checkers.model import Shape, history


class Cost(NamedTuple):
    """Its cost; memory is the process's peak."""

    verdict: Verdict
    cpu_s: float
    peak_mb: float


def write(path: Path, operations: int, *, txn: bool = False, seed: int = 1) -> None:
    """Write a history of sixteen clients, ten keys at a time of up to 1,024 values, and a final reading of all."""
    shape = Shape(
        operations=operations, writers=10, readers=6, keys=10, values_per_key=1024, txn=txn, trouble=0.02
    )
    shape.poll_records = 10
    file = HistoryFile(path, Header(workload="model", seed=seed))
    for op in history(seed, shape):
        file.keep(op)
    file.close()


def measure(path: Path) -> Cost:
    """Judge a file."""
    began = time.process_time()
    stored = StoredHistory(path)
    verdict = judge(stored.header, stored)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Cost(verdict, time.process_time() - began, peak_mb)


def main() -> None:
    """Measure one history and print the verdict and the cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--txn", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.jsonl"
        write(path, arguments.operations, txn=arguments.txn)
        size_mb = path.stat().st_size / 1e6
        cost = measure(path)
    print(cost.verdict.text())
    print(f"\n{size_mb:,.0f} MB of history: {cost.cpu_s:.1f} s of CPU, {cost.peak_mb:,.0f} MB at the peak")


if __name__ == "__main__":
    main()
