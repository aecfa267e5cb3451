"""`write_file` and `make_folders`: after a power cut a file has its old or its new content, as a whole."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from raftlog.base import disk
from raftlog.base.disk import make_folders, put_in_place, write_file
from tests.kit.errors import raises_errno


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Keep each file and folder that is synced, in order, with the names in its folder at that moment."""
    seen: list[tuple[str, list[str]]] = []
    sync = disk.sync_whole

    def noted(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        seen.append(
            (os.path.basename(path), sorted(os.listdir(path if os.path.isdir(path) else Path(path).parent)))
        )
        sync(descriptor)

    monkeypatch.setattr(disk, "sync_whole", noted)
    return seen


def test_a_file_is_synced_before_it_has_its_name_and_its_folder_afterwards(
    tmp_path: Path, synced: list[tuple[str, list[str]]]
) -> None:
    """Else xfs gives the name to an empty file, and any file system may forget the name."""
    write_file(tmp_path / "dev.json", "{}")
    assert synced == [("dev.json.tmp", ["dev.json.tmp"]), (tmp_path.name, ["dev.json"])]
    assert (tmp_path / "dev.json").read_text() == "{}"


def test_a_file_without_syncs_is_replaced_at_once_all_the_same(
    tmp_path: Path, synced: list[tuple[str, list[str]]]
) -> None:
    """A concurrent reader sees the old bytes or the new bytes."""
    write_file(str(tmp_path / "state"), b"old", sync=False)
    with (tmp_path / "state").open("rb") as reader:
        write_file(str(tmp_path / "state"), b"new", sync=False)
        assert reader.read() == b"old"
    assert (tmp_path / "state").read_bytes() == b"new" and not synced


def test_a_file_that_a_library_wrote_is_synced_before_it_has_its_name(
    tmp_path: Path, synced: list[tuple[str, list[str]]]
) -> None:
    """Parquet, say."""
    (tmp_path / "staged").write_bytes(b"rows")
    put_in_place(tmp_path / "staged", tmp_path / "final")
    assert synced == [("staged", ["staged"]), (tmp_path.name, ["final"])]


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, say; the next attempt finds no leftovers."""
    write_file(tmp_path / "state", "old")

    def fails(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "sync_whole", fails)
    with raises_errno(errno.ENOSPC, tmp_path / "state"):
        write_file(tmp_path / "state", "new")
    assert (tmp_path / "state").read_text() == "old" and os.listdir(tmp_path) == ["state"]


def test_a_secret_is_never_in_a_file_that_others_had_open(tmp_path: Path) -> None:
    """A writer that was killed may have left a file of that temporary name, which others can read."""
    left = tmp_path / "users.json.tmp"
    left.write_text("")
    left.chmod(0o644)
    with left.open() as spy:
        write_file(tmp_path / "users.json", "password", secret=True)
        assert spy.read() == ""
    assert stat.S_IMODE((tmp_path / "users.json").stat().st_mode) == 0o600


def test_new_folders_are_known_to_the_folder_above_them(
    tmp_path: Path, synced: list[tuple[str, list[str]]]
) -> None:
    """A folder that is gone takes all with it that was synced in it."""
    make_folders(tmp_path / "data" / "node-1", 0o700)
    assert synced == [(tmp_path.name, ["data"]), ("data", ["node-1"])]
    assert stat.S_IMODE((tmp_path / "data" / "node-1").stat().st_mode) == 0o700
    make_folders(tmp_path / "data" / "node-1")
    assert len(synced) == 2


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    """As os.makedirs does."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "folder"):
        with raises_errno(errno.EEXIST, tmp_path / "file"):
            make_folders(path)
