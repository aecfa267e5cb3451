"""The four jars of Spark's own Kafka connector, for `--connector kafka`: versions, paths, and how to fetch them.

They are read from Maven's local repository, and fetched into it one by one with `mvn`. Not every registry holds them
all in one version, and Ivy (`spark.jars.packages`) gives up at the first missing jar. It does not import Spark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from raftlog.base import variables
from raftlog.pipeline.jobs.control import MissingError

FETCH_TIMEOUT_S: Final = 300.0


class Jar(NamedTuple):
    """A jar by its Maven coordinates."""

    group: str
    artifact: str
    version: str

    @property
    def coordinates(self) -> str:
        return ":".join(self)

    @property
    def path(self) -> Path:
        """The path within a Maven repository."""
        folder = Path(*self.group.split("."), self.artifact, self.version)
        return folder / f"{self.artifact}-{self.version}.jar"


KAFKA_JARS: Final = (
    Jar("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    # always loaded, though only delegation tokens use it; its small interface has not changed since
    Jar("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    Jar("org.apache.kafka", "kafka-clients", "3.9.2"),
    Jar("org.apache.commons", "commons-pool2", "2.13.1"),
)


class JarsMissingError(MissingError):
    """Spark's Kafka connector is not on this machine; the message says what to run."""


def repository() -> Path:
    """Return Maven's local repository: RAFTLOG_JARS, else ~/.m2/repository."""
    return Path(os.environ.get(variables.JARS) or Path.home() / ".m2" / "repository")


def find_jars() -> list[Path]:
    """Return the paths of the four jars. Raise JarsMissingError with the missing jars."""
    missing = [jar for jar in KAFKA_JARS if not (repository() / jar.path).is_file()]
    if missing:
        names = ", ".join(jar.coordinates for jar in missing)
        raise JarsMissingError(
            f"--connector kafka needs jars that are not in {repository()}: {names}; "
            "`raftlog pipeline jars` fetches them with Maven"
        )
    return [repository() / jar.path for jar in KAFKA_JARS]


def fetch_jars() -> list[Path]:
    """Fetch the missing jars with Maven, and return the paths of all four. Raises JarsMissingError."""
    maven = shutil.which("mvn")
    for jar in KAFKA_JARS:
        if not (repository() / jar.path).is_file():
            if maven is None:
                raise JarsMissingError(
                    f"{jar.coordinates} is not in {repository()}, and there is no mvn to fetch it"
                )
            _fetch(maven, jar)
    return find_jars()


def _fetch(maven: str, jar: Jar) -> None:
    command = [maven, "--quiet", "--batch-mode", f"-Dmaven.repo.local={repository()}", "dependency:get"]
    command += ["-Dtransitive=false", f"-Dartifact={jar.coordinates}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)  # noqa: S603 - found by shutil.which
    except subprocess.TimeoutExpired:
        raise JarsMissingError(f"mvn did not fetch {jar.coordinates} within {FETCH_TIMEOUT_S:g} s") from None
    if done.returncode:
        raise JarsMissingError(f"mvn could not fetch {jar.coordinates}: {done.stdout.strip()[:500]}")
