"""A start with another meta.properties: what the testbed takes for a refusal, and that the own file comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raftlog.testing.progress import Stalled
from raftlog_chaos.testbeds.processes import _refusal_of

OWN = b"cluster.id=own\nnode.id=2\n"


class FakeNode:
    """A node whose process is a function of the meta.properties that it finds; it returns exit code and reason."""

    node_id = 2

    def __init__(self, folder: Path, run: Callable[[bytes], tuple[int, str]]) -> None:
        self.folders = [str(folder)]
        self.log_path = folder / "node.log"
        self.log_path.write_bytes(b"earlier\n")
        self._properties = folder / "meta.properties"
        self._run = run
        self.found: list[bytes] = []

    def start(self) -> None:
        self.found.append(self._properties.read_bytes())

    def wait(self) -> int:
        code, reason = self._run(self.found[-1])
        with self.log_path.open("a") as log:
            log.write(f'{{"reason":"{reason}","event":"node_failed"}}\n')
        return code

    def kill(self) -> None:
        """Return at once: the process has ended."""


def refusal_of(tmp_path: Path, run: Callable[[bytes], tuple[int, str]], *, foreign: bool) -> tuple[str, Any]:
    """Return the fault that is found, and the node."""
    folder = tmp_path / "data"
    folder.mkdir()
    files = {folder / "meta.properties": OWN, folder / "meta.properties.crc32c": b"sums"}
    for path, content in files.items():
        path.write_bytes(content)
    node: Any = FakeNode(folder, run)
    fault = _refusal_of(node, foreign)
    assert {path: path.read_bytes() for path in files} == files, "its own files are back"
    return fault, node


@pytest.mark.parametrize("foreign", [False, True])
def test_refusal_with_the_folder_is_right(tmp_path: Path, foreign: bool) -> None:
    """The node finds an empty file, or another cluster's id with its own number, and no checksums."""
    fault, node = refusal_of(tmp_path, lambda _: (1, f"{tmp_path}/data is refused"), foreign=foreign)
    assert fault == ""
    (found,) = node.found
    assert found == (b"cluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=2\n" if foreign else b"")


def test_refusal_without_the_folder_is_a_fault(tmp_path: Path) -> None:
    """An operator would not know which file to put back."""
    fault, _ = refusal_of(tmp_path, lambda _: (1, "it failed"), foreign=False)
    assert "ended with 1 and names no folder" in fault


def test_node_that_ends_well_or_runs_is_a_fault(tmp_path: Path) -> None:
    """It took the folder for its own."""
    fault, _ = refusal_of(tmp_path, lambda _: (0, f"{tmp_path}/data"), foreign=True)
    assert "ended with 0" in fault


def test_node_that_runs_on_is_a_fault(tmp_path: Path) -> None:
    """The wait for its end stalls."""

    def run(_: bytes) -> tuple[int, str]:
        raise Stalled("node 2 ends", 60.0)

    fault, _ = refusal_of(tmp_path, run, foreign=True)
    assert fault == "runs with a foreign meta.properties"
