"""The tree of commands: names and one line of help each. Their modules are imported when they are called."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Final

import typer

from raftlog.cli.tree import Entry, Tree

_TRY, _RUN, _LOOK, _DATA, _PROVE = (
    "To try it",
    "To run it",
    "To look after a cluster",
    "To move records",
    "To prove it",
)

COMMANDS: Final[dict[str, Entry]] = {
    "dev": Entry(_TRY, "raftlog.cli.dev:dev", "Run three nodes here until Ctrl-C."),
    "demo": Entry(_TRY, "raftlog.cli.demo:run", "Stream a file, kill nodes, prove nothing was lost."),
    "server": Entry(_RUN, "raftlog.cli.app:server", "Run one node."),
    "format": Entry(_RUN, "raftlog.cli.format:format_folders", "Name the cluster in a node's empty folders."),
    "config": Entry(
        _RUN, "raftlog.cli.config:config", "Print all settings; get, set and unset those in force."
    ),
    "cluster": Entry(_LOOK, "raftlog.cli.cluster:cluster", "Describe the cluster; is it healthy?"),
    "topic": Entry(
        _LOOK, "raftlog.cli.topic:topic", "Create, list, describe, alter, trim and delete topics."
    ),
    "partition": Entry(
        _LOOK, "raftlog.cli.partition:partition", "List and describe partitions; offsets, elections, moves."
    ),
    "broker": Entry(
        _LOOK, "raftlog.cli.broker:broker", "List and describe brokers, their settings and disks."
    ),
    "quorum": Entry(
        _LOOK, "raftlog.cli.quorum:quorum", "Show the metadata quorum and how far its voters are."
    ),
    "group": Entry(
        _LOOK, "raftlog.cli.group:group", "List and describe groups; show, reset, delete offsets."
    ),
    "transactions": Entry(
        _LOOK,
        "raftlog.cli.transactions:transactions",
        "List and describe transactions; find and end those that hang.",
    ),
    "produce": Entry(
        _DATA, "raftlog.cli.produce:produce", "Send lines or files as records; kcat -P's flags."
    ),
    "consume": Entry(_DATA, "raftlog.cli.consume:consume", "Print records; kcat -C's and -G's flags."),
    "sim": Entry(_PROVE, "raftlog.cli.sim:run", "Run whole clusters in virtual time through faults."),
    "chaos": Entry(_PROVE, "raftlog.cli.chaos:run", "Hurt a real cluster and judge what clients saw."),
    "attack": Entry(_PROVE, "raftlog.cli.attack:run", "Attack a cluster as strangers could, and judge it."),
    "fuzz": Entry(
        _PROVE, "raftlog.cli.fuzz:run", "Send frames of chance to nodes, and see what comes of it."
    ),
    "check": Entry(_PROVE, "raftlog.cli.check:run", "Judge a history of what clients did and saw."),
    "bench": Entry(_PROVE, "raftlog.cli.bench:run", "Measure a cluster on this machine."),
    "compare": Entry(
        _PROVE, "raftlog.cli.compare:run", "Measure raftlog beside Kafka, NATS, Redis and the machine."
    ),
    "version": Entry(_RUN, "raftlog.cli.version:version", "Print the version."),
}


if find_spec("raftlog.cli.pipeline") is not None:
    COMMANDS["pipeline"] = Entry(
        _DATA, "raftlog.cli.pipeline:pipeline", "Run PySpark jobs: archive, aggregate, mirror, audit."
    )


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
    help="A Kafka-wire-compatible replicated log cluster, with failover you can prove.",
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
    """Do nothing but hold the options that come before a command."""
