"""The commands at the root of the tree: names and one line of help each, and the page that lists them.

Knows no typer, which takes three times as long to import as `raftlog --help` takes to print.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final, NamedTuple

from raftlog.cli import exits

ABOUT: Final = "A Kafka-wire-compatible replicated log cluster, with failover you can prove."

OPTIONS: Final = """\
  --version             Print the version.
  --install-completion  Install completion for the current shell.
  --show-completion     Show completion for the current shell, to copy it or
                        customize the installation.
  -h, --help            Show this message and exit."""
"""As typer prints them, which a test compares."""

HELP_COLUMNS: Final = 80
"""The width of a terminal at which no line of the page wraps."""


class Entry(NamedTuple):
    """A command at the root. `target` is "module:name" of a typer app, or of a function that returns its exit code.

    The function's parameters are annotated for typer, or it has a single parameter: a dataclass with annotated fields.
    """

    section: str
    target: str
    help: str


FORMER: Final = {"transactions": "transaction"}
"""Earlier names of commands, which are still accepted, and their present names."""

OTHER_WORDS: Final = {
    "down": "dev stop",
    "ps": "dev status",
    "start": "dev",
    "stop": "dev stop",
    "up": "dev",
}
"""Names that other programs have for commands, and what to type here."""

_TRY, _RUN, _ADMINISTER, _DATA, _PROVE = (
    "To try it",
    "To run it",
    "Administer a cluster",
    "To move records",
    "To prove it",
)

COMMANDS: Final[dict[str, Entry]] = {
    "dev": Entry(_TRY, "raftlog.cli.dev:dev", "Run three nodes here; kill, pause and restart them."),
    "demo": Entry(
        _TRY, "raftlog.cli.demo.command:run", "Stream a file, kill nodes, prove that no record was lost."
    ),
    "server": Entry(_RUN, "raftlog.cli.app:server", "Run one node."),
    "format": Entry(_RUN, "raftlog.cli.format:format_folders", "Name the cluster in a node's empty folders."),
    "certs": Entry(_RUN, "raftlog.cli.certs:certs", "Make a CA and certificates, for development."),
    "backup": Entry(_RUN, "raftlog.cli.backup.command:backup", "Back up a stopped node's data."),
    "restore": Entry(
        _RUN, "raftlog.cli.backup.command:restore", "Bring a backup back into a node's empty folders."
    ),
    "doctor": Entry(
        _RUN, "raftlog.cli.doctor.command:doctor", "Check this machine and the config of a node."
    ),
    "config": Entry(_RUN, "raftlog.cli.config:config", "Print all settings; get, set and unset configs."),
    "debug": Entry(
        _ADMINISTER, "raftlog.cli.debug:debug", "Collect what a bug report needs, without secrets."
    ),
    "status": Entry(_ADMINISTER, "raftlog.cli.status:status", "Show the state of a cluster on one screen."),
    "top": Entry(_ADMINISTER, "raftlog.cli.status:top", "Watch a cluster live: rates, lag, leaders."),
    "cluster": Entry(_ADMINISTER, "raftlog.cli.cluster:cluster", "Describe the cluster; is it healthy?"),
    "topic": Entry(
        _ADMINISTER, "raftlog.cli.topic:topic", "Create, list, describe, alter, trim and delete topics."
    ),
    "partition": Entry(
        _ADMINISTER,
        "raftlog.cli.partition:partition",
        "List and describe partitions; offsets, elections, moves.",
    ),
    "broker": Entry(
        _ADMINISTER, "raftlog.cli.broker:broker", "List and describe brokers, their settings and disks."
    ),
    "node": Entry(_ADMINISTER, "raftlog.cli.node:node", "Wait until a node can be stopped safely."),
    "quorum": Entry(
        _ADMINISTER, "raftlog.cli.quorum:quorum", "Show the metadata quorum and how far its voters are."
    ),
    "group": Entry(
        _ADMINISTER, "raftlog.cli.group:group", "List and describe groups; show, reset, delete offsets."
    ),
    "share-group": Entry(
        _ADMINISTER,
        "raftlog.cli.share_group:share_group",
        "List and describe share groups; reset, delete offsets.",
    ),
    "schema": Entry(
        _ADMINISTER, "raftlog.cli.schema:schema", "List, show, register, check and delete schemas."
    ),
    "log": Entry(_ADMINISTER, "raftlog.cli.log:log", "Dump and verify the files of a node's partitions."),
    "quota": Entry(
        _ADMINISTER, "raftlog.cli.quota:quota", "List, set and delete quotas: what clients may use."
    ),
    "metadata": Entry(
        _ADMINISTER, "raftlog.cli.metadata:metadata", "Dump the cluster's metadata, from a voter's folder."
    ),
    "token": Entry(_ADMINISTER, "raftlog.cli.token:token", "Make, renew, delete and list delegation tokens."),
    "user": Entry(_ADMINISTER, "raftlog.cli.user:user", "List, set and delete users that log in with SCRAM."),
    "acl": Entry(_ADMINISTER, "raftlog.cli.acl.command:acl", "List, add and delete ACLs."),
    "transaction": Entry(
        _ADMINISTER,
        "raftlog.cli.transaction:transaction",
        "List and describe transactions; end hanging transactions.",
    ),
    "context": Entry(
        _ADMINISTER, "raftlog.cli.context:context", "Save how clusters are reached, and choose one."
    ),
    "produce": Entry(
        _DATA, "raftlog.cli.produce:produce", "Send lines or files as records; kcat -P's flags."
    ),
    "consume": Entry(_DATA, "raftlog.cli.consume:consume", "Print records; kcat -C's and -G's flags."),
    "table": Entry(
        _DATA, "raftlog.cli.table:table", "Write topics to Delta or Iceberg tables, exactly once."
    ),
    "sim": Entry(_PROVE, "raftlog.cli.sim:run", "Run whole clusters in virtual time through faults."),
    "chaos": Entry(
        _PROVE, "raftlog.cli.chaos:run", "Inject faults into a real cluster and check what clients saw."
    ),
    "attack": Entry(_PROVE, "raftlog.cli.attack:run", "Attack a cluster as strangers could, and judge it."),
    "fuzz": Entry(
        _PROVE,
        "raftlog.cli.fuzz:run",
        "Send random frames to nodes; look for crashes, hangs and loss.",
    ),
    "check": Entry(_PROVE, "raftlog.cli.check:run", "Judge a history of what clients did and saw."),
    "bench": Entry(_PROVE, "raftlog.cli.bench.command:run", "Measure a cluster on this machine."),
    "compare": Entry(
        _PROVE, "raftlog.cli.compare:run", "Measure raftlog beside Kafka, NATS, Redis and the machine."
    ),
    "conformance": Entry(
        _PROVE, "raftlog.cli.conformance:conformance", "Compare any broker's answers with Kafka 4.3's."
    ),
    "version": Entry(_RUN, "raftlog.cli.version:version", "Print the version."),
}


if find_spec("raftlog.cli.pipeline") is not None:
    COMMANDS["pipeline"] = Entry(
        _DATA, "raftlog.cli.pipeline.command:pipeline", "Run PySpark jobs: archive, aggregate, mirror, audit."
    )


def root_help() -> Iterator[str]:
    """Yield the lines of `raftlog --help`, as typer prints them where they fit."""
    yield from ("Usage: raftlog [OPTIONS] COMMAND [ARGS]...", "", f"  {ABOUT}", "", "Options:", OPTIONS)
    sections: dict[str, list[tuple[str, str]]] = {}
    for name, entry in COMMANDS.items():
        sections.setdefault(entry.section, []).append((name, entry.help))
    sections["Exit codes"] = [(str(code), meaning) for code, meaning in exits.TABLE]
    for section, rows in sections.items():
        width = max(len(name) for name, _ in rows)
        yield from ("", f"{section}:")
        yield from (f"  {name.ljust(width)}  {text}" for name, text in rows)
