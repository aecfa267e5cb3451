"""A power cut takes only what was not durable, and takes it in all the ways that POSIX lets it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from raftlog.faults import unsynced
from raftlog.faults.forgetful_disk import ForgetfulDisk, aside, journal_of
from raftlog.faults.power_cut import at_risk, cut_power
from raftlog.faults.unsynced import Changed, FolderSynced, Named, Removed, Synced
from tests.faults.platter import ModelFile, ModelFolder

NAMES = ("a", "b", "c")
FOLDERS = ("", "x", "y")


class Story:
    """The same operations by chance on real files and in the model."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        root.mkdir()
        self.root = str(root)
        self.disk = ForgetfulDisk([self.root])
        self.platter = ModelFolder()

    def run(self, steps: int) -> None:
        acts = [self.write, self.write, self.write, self.truncate, self.sync, self.sync_folder, self.rename]
        acts += [self.remove, self.remove_folder, self.rename_folder, self.replace, self.restart]
        for _ in range(steps):
            self.chance.choice(acts)()

    def _folder(self) -> tuple[str, ModelFolder]:
        """Pick a folder, made if it is missing."""
        name = self.chance.choice(FOLDERS)
        if not name:
            return self.root, self.platter
        if name not in self.platter.names:
            self.disk.mkdir(f"{self.root}/{name}")
            self.platter.change({name: ModelFolder()})
        folder = self.platter.names[name]
        assert isinstance(folder, ModelFolder)
        return f"{self.root}/{name}", folder

    def _file(self) -> tuple[str, ModelFile]:
        path, folder = self._folder()
        name = self.chance.choice(NAMES)
        self.disk.open(f"{path}/{name}", create=True).close()
        if name not in folder.names:
            folder.change({name: ModelFile()})
        file = folder.names[name]
        assert isinstance(file, ModelFile)
        return f"{path}/{name}", file

    def write(self) -> None:
        path, model = self._file()
        appending = self.chance.random() < 0.7
        position = len(model.content) if appending else self.chance.randint(0, 2_000)
        written = self.chance.randbytes(self.chance.choice((1, 30, 512, 1_500)))
        file = self.disk.open(path)
        file.pwritev([written[:7], written[7:]], position)
        file.close()
        model.write(position, written)

    def truncate(self) -> None:
        path, model = self._file()
        size = self.chance.randint(0, 2_000)
        file = self.disk.open(path)
        file.truncate(size)
        file.close()
        model.truncate(size)

    def sync(self) -> None:
        path, model = self._file()
        file = self.disk.open(path)
        file.sync()
        file.close()
        model.sync()

    def sync_folder(self) -> None:
        path, model = self._folder()
        self.disk.sync_dir(path)
        model.sync()

    def rename(self) -> None:
        path, folder = self._folder()
        old, new = self.chance.choice(NAMES), self.chance.choice(NAMES)
        if old in folder.names and old != new:
            self.disk.rename(f"{path}/{old}", f"{path}/{new}")
            folder.change({old: None, new: folder.names[old]})

    def remove(self) -> None:
        path, folder = self._folder()
        name = self.chance.choice(NAMES)
        if name in folder.names:
            self.disk.remove(f"{path}/{name}")
            folder.change({name: None})

    def remove_folder(self) -> None:
        name = self.chance.choice(FOLDERS[1:])
        if name in self.platter.names:
            self.disk.rmtree(f"{self.root}/{name}")
            self.platter.change({name: None})

    def rename_folder(self) -> None:
        old, new = self.chance.sample(FOLDERS[1:], 2)
        if old in self.platter.names and new not in self.platter.names:
            self.disk.rename(f"{self.root}/{old}", f"{self.root}/{new}")
            self.platter.change({old: None, new: self.platter.names[old]})

    def replace(self) -> None:
        path, folder = self._folder()
        name, content = self.chance.choice(NAMES), self.chance.randbytes(40)
        syncing = self.chance.random() < 0.5
        self.disk.write_file(f"{path}/{name}", content, sync=syncing)
        temporary = ModelFile()
        folder.change({name + ".tmp": temporary})
        temporary.write(0, content)
        folder.change({name + ".tmp": None, name: temporary})
        if syncing:
            temporary.sync()
            folder.sync()

    def restart(self) -> None:
        """Kill -9: another process goes on with what is in the page cache."""
        self.disk = ForgetfulDisk([self.root])


def test_after_any_story_a_power_cut_leaves_only_what_it_may(folder: Path) -> None:
    """Synced bytes are there; names are from some moment since the last sync of their folder."""
    for seed in range(150):
        scenario = Story(folder / str(seed), seed)
        scenario.run(40)
        cut_power([scenario.root], random.Random(seed))
        assert not scenario.platter.complaint(Path(scenario.root)), f"seed {seed}"
        assert not aside(scenario.root).exists()


def test_a_merciless_power_cut_leaves_exactly_what_was_synced(folder: Path) -> None:
    """Contents of the last sync of each file, under the names of the last sync of each folder."""
    for seed in range(100):
        scenario = Story(folder / str(seed), seed)
        scenario.run(40)
        cut_power([scenario.root], None)
        scenario.platter.crash()
        assert not scenario.platter.complaint(Path(scenario.root)), f"seed {seed}"


def test_what_is_written_while_a_sync_is_under_way_is_not_durable_by_it(data: str) -> None:
    """The flusher syncs on a thread of its own, and the loop goes on writing, making and removing."""
    disk = ForgetfulDisk([data])
    disk.write_file(f"{data}/a", b"")
    disk.write_file(f"{data}/c", b"removed")
    file = disk.open(f"{data}/a")
    file.pwritev([b"before"], 0)
    folder_inode, inode, epoch = os.stat(data).st_ino, os.stat(f"{data}/a").st_ino, file.begin_sync()
    file.pwritev([b"after"], 6)
    disk.note(Synced(inode, epoch))
    folder_epoch = disk.begin_sync_dir(folder_inode)
    disk.rename(f"{data}/a", f"{data}/b")
    disk.remove(f"{data}/c")
    disk.note(FolderSynced(folder_inode, folder_epoch))
    cut_power([data], None)
    assert {name: Path(data, name).read_bytes() for name in os.listdir(data)} == {
        "a": b"before",
        "c": b"removed",
    }


def test_a_power_cut_after_everything_was_synced_changes_nothing(folder: Path) -> None:
    """No change is at risk: contents and names are as in the last moment."""
    for seed in range(20):
        scenario = Story(folder / str(seed), seed)
        scenario.run(60)
        for path, _, names in os.walk(scenario.root):
            for name in names:
                file = scenario.disk.open(f"{path}/{name}")
                file.sync()
                file.close()
            scenario.disk.sync_dir(path)
        before = {path: path.read_bytes() for path in Path(scenario.root).rglob("*") if path.is_file()}
        assert at_risk([scenario.root]) == {}
        assert cut_power([scenario.root], random.Random(seed)) == (0, 0)
        assert before == {
            path: path.read_bytes() for path in Path(scenario.root).rglob("*") if path.is_file()
        }


def test_unsynced_bytes_are_lost_torn_or_kept(data: str) -> None:
    """All of them, none, a prefix, a later sector without an earlier sector, and garbage in between, all happen."""
    outcomes = set()
    for seed in range(150):
        disk = ForgetfulDisk([data])
        file = disk.open(f"{data}/a", create=True)
        file.truncate(0)
        file.pwritev([b"synced" + b"s" * 506], 0)
        file.sync()
        disk.sync_dir(data)
        file.pwritev([b"1" * 512 + b"2" * 512], 512)
        file.close()
        assert at_risk([data]) == {f"{data}/a": 1024}
        cut_power([data], random.Random(seed))
        found = Path(data, "a").read_bytes()
        assert found[:512] == b"synced" + b"s" * 506
        outcomes.add((found[512:1024].rstrip(b"\0")[:1], found[1024:][:1], len(found) % 512 != 0))
    assert {(b"", b"", False), (b"1", b"2", False), (b"", b"2", False), (b"1", b"", True)} <= outcomes
    assert any(first not in (b"", b"1") for first, _, _ in outcomes), "no garbage"


def test_names_without_a_synced_folder_come_back_or_go(data: str) -> None:
    """A removed file has its old bytes again, a replaced file too, a new file is gone; or no change is undone."""
    outcomes = set()
    for seed in range(60):
        disk = ForgetfulDisk([data])
        for name in ("removed", "replaced"):
            disk.write_file(f"{data}/{name}", b"old")
        disk.remove(f"{data}/removed")
        disk.write_file(f"{data}/replaced", b"new", sync=False)
        disk.mkdir(f"{data}/folder/inner")
        cut_power([data], random.Random(seed))
        outcomes.add(
            (
                Path(data, "removed").exists(),
                Path(data, "replaced").read_bytes() == b"old",
                Path(data, "folder").exists(),
            )
        )
        if Path(data, "folder").exists():
            ForgetfulDisk([data]).rmtree(f"{data}/folder")
            cut_power([data], random.Random(0))
    assert {(True, True, False), (False, False, True), (False, True, False)} <= outcomes


def test_what_a_failed_sync_was_to_keep_is_lost_whatever_comes_later(data: str) -> None:
    """After EIO from fsync the pages count as clean: a second sync succeeds without effect on them."""
    for seed in range(20):
        disk = ForgetfulDisk([data])
        disk.write_file(f"{data}/a", b"old")
        file = disk.open(f"{data}/a")
        file.pwritev([b"doomed"], 3)
        file.fail_sync()
        file.pwritev([b"later"], 9)
        file.sync()
        assert file.pread(99, 0) == b"olddoomedlater"
        cut_power([data], random.Random(seed))
        assert Path(data, "a").read_bytes() == b"old" + bytes(6) + b"later"


def test_changes_that_were_written_down_but_never_made_undo_to_nothing(data: str) -> None:
    """The process may be killed between the two; its journal then knows more than its files."""
    disk = ForgetfulDisk([data])
    disk.write_file(f"{data}/a", b"old a")
    disk.write_file(f"{data}/b", b"old b")
    folder_inode, inode = os.stat(data).st_ino, os.stat(f"{data}/a").st_ino
    disk.note(Changed(inode, 0, 3, 700, 5, b" a"))
    disk.note(Named(folder_inode, 9, "b", inode, "a", f"{aside(data)}/7"))
    disk.note(Removed(folder_inode, 9, "a", inode, f"{aside(data)}/8"))
    journal = journal_of([data])
    journal.write_bytes(journal.read_bytes() + b"\xff\0\0\0half a record")
    cut_power([data], random.Random(1))
    assert {name: Path(data, name).read_bytes() for name in os.listdir(data)} == {
        "a": b"old a",
        "b": b"old b",
    }


def test_a_journal_does_not_grow_with_what_was_synced(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node may run for days: the journal is written anew, and keeps all unsynced changes."""
    monkeypatch.setattr(unsynced, "COMPACT_BYTES", 2_000)
    disk = ForgetfulDisk([data])
    file = disk.open(f"{data}/a", create=True)
    disk.sync_dir(data)
    for number in range(500):
        file.pwritev([b"%04d" % number], 4 * number)
        if number < 490:
            file.sync()
    assert journal_of([data]).stat().st_size < 4_000
    assert at_risk([data]) == {f"{data}/a": 40}


def test_what_was_removed_is_not_kept_longer_than_it_could_come_back(data: str) -> None:
    """Otherwise retention would free no room."""
    disk = ForgetfulDisk([data])
    disk.mkdir(f"{data}/t-0")
    disk.write_file(f"{data}/t-0/log", b"x" * 1_000)
    disk.rmtree(f"{data}/t-0")
    assert any(path.is_file() for path in aside(data).rglob("log"))
    disk.sync_dir(data)
    assert [path.name for path in aside(data).rglob("*")] == ["journal"]
