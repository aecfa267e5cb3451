"""Members and transactional producers of every library: Python's, KafkaJS, Go's, Apache Kafka's own on the JVM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.clients.members import MemberKind

HERE = Path(__file__).parent
JAVASCRIPT = HERE / "javascript"
JAVA = HERE / "java"
BIN = HERE.parents[1] / "build" / "bin"
GO_LIBRARIES = ("sarama", "sarama-1.43", "kafka-go", "franz-go")
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")
"""Started quickly, and small: several run at once."""


def kafkajs_kind() -> MemberKind:
    return MemberKind("kafkajs", ("node", str(JAVASCRIPT / "member.js")))


def go_command(library: str, *words: str) -> tuple[str, ...]:
    """Return what starts a program of tests/interop/go."""
    assert library in GO_LIBRARIES
    return (str(BIN / f"interop-{library}"), *words)


def go_kind(library: str, assignor: str = "roundrobin") -> MemberKind:
    return MemberKind(library, go_command(library, "member"), assignor)


def go_maker(library: str) -> TransactorKind:
    return TransactorKind(library, go_command(library, "transactor"))


def java_command(main: str, *options: str) -> tuple[str, ...]:
    """Return the command that starts a class with the stock client on its path: our own class, or a tool of Kafka's."""
    jars = JAVA / "target" / "classpath"
    path = f"{JAVA / 'target' / 'classes'}:{jars.read_text().strip() if jars.is_file() else ''}"
    return ("java", *JVM, *options, "-cp", path, main)


def java_kind(assignor: str) -> MemberKind:
    return MemberKind("java", java_command("raftlog.Member"), assignor)


class TransactorKind(NamedTuple):
    """A library with transactional producers that print transactor.py's lines."""

    name: str
    command: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


def python_maker(library: str) -> TransactorKind:
    return TransactorKind(library, (sys.executable, str(HERE / "transactor.py"), library))


def kafkajs_maker() -> TransactorKind:
    return TransactorKind("kafkajs", ("node", str(JAVASCRIPT / "transactor.js")))


def java_maker() -> TransactorKind:
    return TransactorKind("java", java_command("raftlog.Transactor"))


def copier_kinds(library: str) -> tuple[MemberKind, MemberKind]:
    """Return members that copy in transactions: the first never commits, the second does."""
    if library in GO_LIBRARIES:
        command = go_command(library, "copier")
    elif library == "kafkajs":
        command = ("node", str(JAVASCRIPT / "copier.js"))
    else:
        command = (sys.executable, str(HERE / "copier.py"), library)
    return MemberKind(library, (*command, "holds")), MemberKind(library, (*command, "commits"))


def case(*kinds: MemberKind | TransactorKind) -> Any:
    """Libraries as a parameter, with the marks of optional libraries."""
    names = {"go" if kind.name in GO_LIBRARIES else kind.name for kind in kinds} & {"go", "java", "kafkajs"}
    return pytest.param(
        *kinds, marks=[getattr(pytest.mark, name) for name in sorted(names)], id="-".join(map(str, kinds))
    )
