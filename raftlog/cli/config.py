"""`raftlog config`: all settings; and the configs of topics, brokers and groups in a cluster."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from raftlog.cli import exits
from raftlog.cli.cluster_command import verb
from raftlog.cli.exits import Failure
from raftlog.cli.rows import Form, print_rows
from raftlog.cli.target import Target

config = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    invoke_without_command=True,
    help="Print the table of all settings: name, type, default, meaning. Or get, set and unset configs.",
)


class Kind(StrEnum):
    """The resources that have settings of their own."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


Of = Annotated[Kind, typer.Argument(metavar="topic|broker|group")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="a topic, a broker's id, or a group")]


@config.callback()
def table(
    context: typer.Context,
    *,
    topics: Annotated[
        bool, typer.Option("--topic", "--topics", help="topic configs, not the node's settings")
    ] = False,
    groups: Annotated[
        bool, typer.Option("--group", "--groups", help="group configs, not the node's settings")
    ] = False,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Apache Kafka's broker settings that raftlog does not have")
    ] = False,
    json: Annotated[bool, typer.Option("--json", "-J", help="print JSON")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="print a Markdown table")] = False,
) -> None:
    """Print the table of all settings, when no command follows."""
    if context.invoked_subcommand is None:
        from raftlog.cli.config_table import print_table

        print_table(
            "topic" if topics else "group" if groups else "kafka" if kafka else "node",
            form="json" if json else "markdown" if markdown else "text",
        )


@verb(config, "get", prints_rows=True)
def get(
    target: Target,
    kind: Of,
    name: Name,
    settings: Annotated[list[str] | None, typer.Argument(metavar="SETTING", help="default: all")] = None,
    *,
    changed: Annotated[bool, typer.Option("--changed", help="only configs that are not the default")] = False,
    form: Form,
) -> None:
    """Show the settings of a topic, a broker or a group that are in force, and where each comes from."""
    from raftlog.cli.effective_settings import settings_of

    rows = settings_of(target, kind.value, name)
    if unknown := [each for each in settings or [] if each not in {row["name"] for row in rows}]:
        raise Failure(f"{kind} {name} has no config {', '.join(unknown)}", exits.NOT_FOUND)
    rows = [
        row
        for row in rows
        if (not settings or row["name"] in settings) and not (changed and row["source"] == "default")
    ]
    print_rows(rows, form, ("name", "source", "value"), fold=True)


@verb(config, "set")
def set_(
    target: Target,
    kind: Of,
    name: Name,
    settings: Annotated[list[str], typer.Argument(metavar="SETTING=VALUE")],
) -> None:
    """Set settings of a topic, a broker or a group, all or none."""
    from raftlog.cli.client_settings import read_settings
    from raftlog.cli.effective_settings import change_settings

    change_settings(target, kind.value, name, dict(read_settings(settings)))


@verb(config, "unset")
def unset(
    target: Target,
    kind: Of,
    name: Name,
    settings: Annotated[list[str], typer.Argument(metavar="SETTING")],
) -> None:
    """Reset settings of a topic, a broker or a group to their defaults, in one atomic change."""
    from raftlog.cli.effective_settings import change_settings

    change_settings(target, kind.value, name, dict.fromkeys(settings))
