"""A real Prometheus that scrapes a cluster, to test dashboards and alerts. Debian's package `prometheus` has it."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from raftlog.testing.ports import LOOPBACK, HeldPorts
from raftlog.testing.progress import wait_until

INSTALLED = shutil.which("prometheus") is not None and shutil.which("promtool") is not None


class Prometheus:
    """A running Prometheus at an address."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, expression: str) -> list[Any]:
        """Return the series that an expression gives now, or one row for a number.

        Raises ValueError for an expression that is none, and OSError while Prometheus is not ready.
        """
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/query?{query}", timeout=30) as response:
                found = json.load(response)["data"]
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            raise ValueError(f"{expression}: {json.load(error)['error']}") from None
        return found["result"] if found["resultType"] != "scalar" else [found["result"]]

    def wait_for(self, expression: str) -> None:
        """Wait until an expression gives something."""

        def gives() -> bool:
            try:
                return bool(self.ask(expression))
            except OSError:
                return False

        wait_until(gives, f"Prometheus knows {expression}")


@contextmanager
def running_prometheus(folder: Path, targets: Sequence[str], labels: dict[str, str]) -> Iterator[Prometheus]:
    """Scrape these addresses (host:port) each second, and give the Prometheus that does."""
    folder.mkdir(parents=True, exist_ok=True)
    job = {"job_name": "raftlog", "static_configs": [{"targets": list(targets), "labels": labels}]}
    config = folder / "prometheus.json"  # JSON is YAML too
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
    ports = HeldPorts(1)
    address = f"{LOOPBACK}:{ports.ports[0]}"
    ports.release()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait()
