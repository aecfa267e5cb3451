"""Runs one attack in a process of its own: the order is JSON on standard input, the report JSON on standard output."""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import Final

import msgspec

from raftlog_chaos.attacks.registry import load_attacks
from raftlog_chaos.attacks.target import ClaimBroken, Target

MEMORY_BYTES: Final = 1 << 30
"""Memory limit of an attack's own process: it may harm the nodes, not the machine."""
START_S: Final = 10.0
"""An attack's process has so much longer than the attack, for its imports."""
NICENESS: Final = 10
"""An attacker from elsewhere would not take the nodes' own cores."""


class Order(msgspec.Struct, frozen=True):
    """The attack to run, and its target."""

    attack: str
    target: Target


class Report(msgspec.Struct, frozen=True):
    """The nodes' answers in a few words; `broken`: how an answer contradicts the attack's claim."""

    answered: str = ""
    broken: str = ""


def restrain() -> None:
    """Limit this process: memory by a limit, the CPU by its priority; files as needed."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.nice(NICENESS)


def main() -> None:
    """Attack once."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    restrain()
    attack = load_attacks()[order.attack]
    signal.setitimer(signal.ITIMER_REAL, attack.within_s + START_S)  # it ends even without a waiting parent
    try:
        report = Report(attack.run(order.target))
    except ClaimBroken as error:
        report = Report(broken=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(report))


if __name__ == "__main__":
    main()
