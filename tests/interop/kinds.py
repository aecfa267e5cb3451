"""Members of groups in other languages: KafkaJS on Node.js, Apache Kafka's own client on the JVM."""

from __future__ import annotations

from pathlib import Path

from tests.clients.members import Kind

HERE = Path(__file__).parent
JAVASCRIPT = HERE / "javascript"
JAVA = HERE / "java"
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")
"""Started quickly, and small: several run at once."""


def kafkajs_kind() -> Kind:
    return Kind("kafkajs", ("node", str(JAVASCRIPT / "member.js")))


def java_command(main: str, *options: str) -> tuple[str, ...]:
    """Return what starts a class with the stock client on its path: one of ours, or one of Kafka's tools."""
    jars = JAVA / "target" / "classpath"
    path = f"{JAVA / 'target' / 'classes'}:{jars.read_text().strip() if jars.is_file() else ''}"
    return ("java", *JVM, *options, "-cp", path, main)


def java_kind(assignor: str) -> Kind:
    return Kind("java", java_command("raftlog.Member"), assignor)
