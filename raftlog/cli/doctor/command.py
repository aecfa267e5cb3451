"""`raftlog doctor`: check a machine and a config before a node is relied on, and report what must be fixed.

No node has to run, and it makes no changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from raftlog.base import variables
from raftlog.base.config import NodeConfig, environment_name, is_secret
from raftlog.base.config.network import is_loopback
from raftlog.cli.doctor.data import check_data
from raftlog.cli.doctor.findings import Finding, Level, mend, note, ok
from raftlog.cli.doctor.machine import check_clock, check_disks, check_limits, check_versions
from raftlog.cli.doctor.network import (
    check_advertised,
    check_peers_clocks,
    check_ports,
    check_quorum,
)
from raftlog.cli.exits import FAILED
from raftlog.cli.printable import printable
from raftlog.cli.rows import Form, print_rows
from raftlog.cli.server import read_config, read_config_file

OTHERS_MAY_READ: Final = 0o044


def check_config(node: NodeConfig, file: Path | None) -> Iterator[Finding]:
    """Report the config's warnings, and whether others may read secrets in its file."""
    for warning in node.warnings:
        if warning.event == "cluster_secret_missing":  # check_secret knows whether it matters
            continue
        words = ", ".join(f"{name} {value}" for name, value in warning.fields.items())
        yield note("config", f"{warning.event.replace('_', ' ')}: {words}", "see raftlog config")
    written, _ = read_config_file(file)
    has_secret = any(is_secret(environment_name(name)) for name in written)
    if file is not None and has_secret and file.stat().st_mode & OTHERS_MAY_READ:
        yield note("secrets", f"other users may read {file}, which has secrets", f"chmod 600 {file}")


def check_secret(node: NodeConfig) -> Iterator[Finding]:
    """See whether strangers are kept out of the cluster."""
    if "raftlog.cluster.secret" in node.given:
        yield ok("secrets", "raftlog.cluster.secret is set")
    elif all(is_loopback(host) for host, _ in node.voters.values()):
        yield ok("secrets", "raftlog.cluster.secret is not set, and the cluster is on this machine only")
    else:
        yield mend(
            "secrets",
            "raftlog.cluster.secret is not set, so anyone who knows the voters' addresses can act as a node",
            "set it to the same on every node, such as what openssl rand -hex 32 prints",
        )


CHECKS: Final[tuple[Callable[[NodeConfig], Iterable[Finding]], ...]] = (
    check_limits,
    check_versions,
    check_clock,
    check_peers_clocks,
    check_disks,
    check_data,
    check_ports,
    check_advertised,
    check_quorum,
    check_secret,
)


def examine(node: NodeConfig, file: Path | None) -> Iterator[Finding]:
    """Yield all findings, in the order of the report."""
    yield from check_config(node, file)
    for check in CHECKS:
        yield from check(node)


def doctor(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", envvar=variables.CONFIG, help="the node's config file (default: none)"
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", "-J", help="print JSON")] = False,
) -> int:
    """Check this machine for a node: limits, packages, clocks, disks, data, ports, addresses, quorum, secrets.

    Exit code 1: something must be fixed. The node may run or not; it makes no changes.
    """
    found = list(examine(read_config(config, []), config))
    if json:
        rows = [
            {"level": each.level, "about": each.about, "sentence": each.sentence, "advice": each.advice}
            for each in found
        ]
        print_rows(rows, Form.JSON)
    else:
        for line in _lines(found):
            print(printable(line))
    return FAILED if any(each.level is Level.MEND for each in found) else 0


def _lines(found: list[Finding]) -> Iterator[str]:
    for each in found:
        yield f"{each.level:<4}  {each.about}: {each.sentence}"
        if each.advice:
            yield f"      -> {each.advice}"
    counts = {level: sum(each.level is level for each in found) for level in Level}
    yield f"{counts[Level.MEND]} to mend, {counts[Level.NOTE]} to know of, {counts[Level.OK]} fine"
