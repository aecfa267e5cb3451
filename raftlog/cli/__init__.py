"""The command line. The imports of a sub-command are made only when it runs; the server's path skips even typer."""

from __future__ import annotations

import gc
import os
import signal
import sys

_MAY_SKIP_CLEANUP = frozenset({"broker", "cluster", "config", "group", "partition", "quorum", "topic"})
"""Commands without clean-up. They wait in C, where Python's own way to end at Ctrl-C comes late."""


def main() -> None:
    """Run `raftlog` with the process's arguments."""
    if sys.argv[1:2] == ["server"]:
        from raftlog.base import import_without

        import_without("typing_extensions", "msgspec")  # 330 KB of a node's memory
    if sys.argv[1:3] == ["server", "--fork-nodes"]:
        from raftlog.cli.fork_server import main as fork_nodes

        fork_nodes(sys.argv[3:])
        return
    if sys.argv[1:2] == ["server"]:
        gc.disable()  # looking for garbage among what is imported is a tenth of a node's start; `process` enables it
        from raftlog.cli.server import main as serve

        serve(sys.argv[2:])
        return
    if sys.argv[1:] in (["--help"], ["-h"]) and _prints_help():
        return
    if (
        sys.argv[1:2]
        and sys.argv[1] in _MAY_SKIP_CLEANUP
        and sys.argv[1:3] != ["cluster", "restart"]  # it ends drains
        and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    ):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from raftlog.cli.app import app

    app(prog_name="raftlog")


def _prints_help() -> bool:
    """Print the page of commands; return False where typer has to break its lines."""
    from raftlog.cli.commands import HELP_COLUMNS, root_help

    if _columns() < HELP_COLUMNS:
        return False
    try:
        print(*root_help(), sep="\n", flush=True)
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    return True


def _columns() -> int:
    """Return the width of the terminal as `shutil` finds it, without importing that; 80 where there is none."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80
