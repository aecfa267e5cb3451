"""The command line. What a sub-command needs is imported only when it runs; the server's path skips even typer."""

from __future__ import annotations

import sys


def main() -> None:
    """Run `raftlog` with the process's arguments."""
    if sys.argv[1:2] == ["server"]:
        from raftlog.cli.server import main as serve

        serve(sys.argv[2:])
        return
    from raftlog.cli.app import app

    app(prog_name="raftlog")
