"""`raftlog attack`: hostile scripts against a cluster of three, each judged by its effect on nodes and bystanders."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from raftlog.base.disk import write_file
from raftlog.cli import exits
from raftlog.cli.attack_report import FORMS, AttackReport, as_json, figures, list_attacks, print_report
from raftlog.cli.end_signals import ended_by_signals
from raftlog.testing.certificates import Certificates, store_settings
from raftlog.testing.cluster import AdminCluster, ClusterError
from raftlog_chaos.attacks.registry import Attack, Shape, load_attacks
from raftlog_chaos.attacks.runner import Runner
from raftlog_chaos.attacks.session import SETTINGS, AttackSession
from raftlog_chaos.attacks.target import LOGIN_PASSWORD, LOGIN_USERS, NodePorts
from raftlog_chaos.attacks.verdict import Limits, Outcome
from raftlog_chaos.testbeds.secured import SecuredListener

NODES: Final = 3
MANY_FILES: Final = 4_096
FEW_FILES: Final = 1_024
"""Descriptors that a node may open: a server's usual limit, and a shell's."""
LOGINS: Final = {
    "listener.name.logins.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.logins.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        + " ".join(f'user_{user}="{LOGIN_PASSWORD}"' for user in LOGIN_USERS)
        + ";"
    ),
}
"""Settings of a listener that requires authentication, without TLS."""
ENCRYPTED: Final = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"}
DAYS: Final = 2
"""The certificates' lifetime; no run takes as long."""
SHOWN: Final = 6
"""Faults shown of an attack; --json has them all."""


@dataclass(frozen=True, slots=True)
class AttackOptions:
    """The options of the command line."""

    listing: Annotated[bool, typer.Option("--list", help="list the attacks and what each claims")] = False
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="only this one (may be repeated)")
    ] = None
    only_ci: Annotated[bool, typer.Option("--only-ci", help="only attacks that run in CI")] = False
    minutes: Annotated[
        float, typer.Option(min=0, help="begin no attack after so long; what is left counts as a failure")
    ] = 60
    report: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="write a report, .json or .md (may be repeated)")
    ] = None
    json: Annotated[bool, typer.Option("--json", "-J", help="print JSON")] = False


def run(options: AttackOptions) -> int:
    """Attack a cluster of three as strangers could, and judge: does it live, and do honest clients notice?"""
    book = load_attacks()
    wrong = [f"no such attack: {name} (--list shows all)" for name in options.only or () if name not in book]
    wrong += [
        f"{path}: a report ends in .json or .md" for path in options.report or () if path.suffix not in FORMS
    ]
    if wrong:
        print(f"raftlog: {'; '.join(wrong)}", file=sys.stderr)
        return exits.USAGE
    chosen = [each for each in book.values() if not options.only or each.name in options.only]
    chosen = [each for each in chosen if each.ci or not options.only_ci]
    if options.listing:
        list_attacks(chosen)
        return exits.OK
    with ended_by_signals():
        return _run(chosen, options)


def _run(attacks: Sequence[Attack], options: AttackOptions) -> int:
    began, limits = time.monotonic(), Limits()
    runner = Runner(
        lambda shape: AttackSession(ProcessGround(shape), limits),
        Screen(len(attacks)),
        limits,
        has_time=lambda: time.monotonic() - began < options.minutes * 60,
    )
    interrupted = False
    try:
        runner.run(attacks)
    except KeyboardInterrupt:
        interrupted = True
    except (OSError, ClusterError) as error:
        print(f"raftlog: {error}", file=sys.stderr)
    report = AttackReport.of(attacks, runner.outcomes, time.monotonic() - began)
    for path in options.report or ():
        write_file(path, FORMS[path.suffix](report))
    if options.json:
        print(as_json(report))
    else:
        print_report(report)
    if interrupted:
        return exits.INTERRUPTED
    return exits.OK if report.passed else exits.FAILED


class ProcessGround:
    """Three nodes on loopback with their HTTP APIs. See Ground."""

    def __init__(self, shape: Shape) -> None:
        open_files = FEW_FILES if shape == "few files" else MANY_FILES
        self._cluster = AdminCluster(NODES, settings=SETTINGS)
        self._cluster.limit_files(open_files)
        self._closed = False
        secured = logins = None
        try:
            if shape == "closed":
                secured = SecuredListener(self._cluster, self._cluster.directory / "certificates")
                logins = self._cluster.add_listener("LOGINS", "SASL_PLAINTEXT")
                for node in self._cluster.nodes.values():
                    node.configure(LOGINS)
            if shape == "encrypted":
                self._encrypt()
            self._cluster.start()
            if secured is not None:
                secured.let_in(LOGIN_USERS, LOGIN_PASSWORD)
        except BaseException:
            self._cluster.close()
            raise
        self.bootstrap = self._cluster.bootstrap_servers if secured is None else secured.bootstrap
        self.client_settings = {} if secured is None else secured.client_settings
        self.doors = {
            node: NodePorts(
                each.host,
                each.port,
                each.controller_port,
                each.admin_port,
                self._cluster.nodes[node].folders[0],
                logins=logins[node] if logins else 0,
                secure=secured.ports[node] if secured else 0,
                https=shape == "encrypted",
                registry=each.schema_port,
            )
            for node, each in self._cluster.addresses.items()
        }

    def _encrypt(self) -> None:
        """Have the HTTP API and the controllers' listener speak TLS, with one certificate for each node."""
        nodes = self._cluster.nodes
        certificates = Certificates(self._cluster.directory / "certificates")
        names = [[f"node-{node_id}", node.host, "localhost"] for node_id, node in nodes.items()]
        for node, keystore in zip(nodes.values(), certificates.make(names, days=DAYS), strict=True):
            stores = store_settings(keystore, certificates.ca)
            node.configure(ENCRYPTED | stores | {"raftlog.admin.ssl.certificate": str(keystore)})

    def pid(self, node: int) -> int:
        return self._cluster.nodes[node].pid

    def log(self, node: int) -> Path:
        return self._cluster.nodes[node].log_path

    def ended(self, node: int) -> str:
        if self._cluster.nodes[node].running:
            return ""
        if self._closed:
            return "it was stopped"
        return last_words(self._cluster.nodes[node].log_tail())

    def close(self) -> None:
        self._closed = True
        self._cluster.close()


def last_words(log: str) -> str:
    """Return the line of a log's end with the reason why the process ended: an error, or else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "error" in line]
    return (telling or lines or ["its log is empty"])[-1][:300]


class Screen:
    """Shows progress on standard error."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._seen: set[str] = set()

    def begins(self, attack: Attack) -> None:
        self._seen.add(attack.name)
        self.print_line(f"[{len(self._seen)}/{self._count}] {attack.name}: {attack.claim}")

    def ended(self, outcome: Outcome) -> None:
        self.print_line(f"    {outcome.status}: {figures(outcome)}; {outcome.seen.answered}")
        for fault in outcome.faults[:SHOWN]:
            self.print_line(f"    ! {fault}")

    def print_line(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)
