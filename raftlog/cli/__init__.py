"""The command line. The imports of a sub-command are made only when it runs; the server's path skips even typer."""

from __future__ import annotations

import signal
import sys

_CAN_END_AT_ONCE = frozenset({"broker", "cluster", "config", "group", "partition", "quorum", "topic"})
"""Commands that have nothing to clean up. They wait in C, where Python's own way to end at Ctrl-C comes late."""


def main() -> None:
    """Run `raftlog` with the process's arguments."""
    if sys.argv[1:3] == ["server", "--fork-nodes"]:
        from raftlog.cli.fork_server import main as fork_nodes

        fork_nodes(sys.argv[3:])
        return
    if sys.argv[1:2] == ["server"]:
        from raftlog.cli.server import main as serve

        serve(sys.argv[2:])
        return
    if (
        sys.argv[1:2]
        and sys.argv[1] in _CAN_END_AT_ONCE
        and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    ):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from raftlog.cli.app import app

    app(prog_name="raftlog")
