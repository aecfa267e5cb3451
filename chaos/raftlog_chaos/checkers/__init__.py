"""Judges of histories and of replicas. They know nothing of how the world was made."""

from __future__ import annotations

from raftlog_chaos.checkers.findings import Finding
from raftlog_chaos.checkers.judging import judge
from raftlog_chaos.checkers.verdict import Verdict

__all__ = ["Finding", "Verdict", "judge"]
