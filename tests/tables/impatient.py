"""Runs `raftlog …` with short limits to what a catalog or a store may take: `ARGS…`."""

from __future__ import annotations

from raftlog.cli import main
from raftlog.tables import patience

if __name__ == "__main__":
    patience.SILENT_S, patience.STOP_S = 1.0, 3.0  # type: ignore[misc] # shorter than the constants
    main()
