"""The tree of commands as a typer app. Their modules are imported when they are called."""

from __future__ import annotations

from typing import Annotated

import typer

from raftlog.cli.commands import ABOUT, COMMANDS
from raftlog.cli.tree import Tree

server = typer.Typer(add_completion=False, rich_markup_mode=None)


@server.command(
    "server",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def _server(context: typer.Context) -> None:
    """Run one node; without a config file, alone on port 9092. See raftlog server --help."""
    from raftlog.cli.server import main

    main(context.args)


class _Commands(Tree):
    entries = COMMANDS


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=ABOUT,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from raftlog.cli.version import version

        version()
        raise typer.Exit


@app.callback()
def raftlog(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Hold the options that come before a command."""
