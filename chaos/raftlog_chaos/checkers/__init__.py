"""Judges of histories and of replicas. They are independent of the world that made them."""

from __future__ import annotations

from raftlog_chaos.checkers.findings import Finding
from raftlog_chaos.checkers.judging import judge
from raftlog_chaos.checkers.verdict import Verdict

__all__ = ["Finding", "Verdict", "judge"]
