"""raftlog backup and restore: files are copied, linked or refused, in words that name the file."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from raftlog.base.checked_files import CHECKSUMS, write_checked
from raftlog.base.disk import RealDisk
from raftlog.base.types import METADATA_FOLDER, TopicPartition
from raftlog.cli.app import app
from raftlog.cli.backup import files as backup_files
from raftlog.metadata.features import RAFTLOG_METADATA_VERSION
from raftlog.metadata.image import EMPTY_IMAGE
from raftlog.metadata.metadata_records import (
    Batch,
    BrokerRegistered,
    ClusterNamed,
    ControllerElected,
    FeatureChanged,
    Record,
    encode_batch,
)
from raftlog.metadata.record_replay import apply_batch
from raftlog.metadata.snapshot import encode_image
from raftlog.quorum.incarnations import OTHERS, OWN
from raftlog.quorum.snapshot import Snapshot, encode_snapshot
from raftlog.quorum.wal import COMMAND_PREFIX, NAME, encode_file
from raftlog.storage.log_directory import ForeignLogDirectory, LogDirectory
from tests.kit.errors import raises_errno

CLUSTER = "the-cluster"
ORDERS = TopicPartition("orders", 0)


class FakeNode:
    """The files of a node that was stopped, without having run: two folders, a partition of three segments."""

    def __init__(
        self, root: Path, node_id: int = 1, *, epochs: dict[int, int] | None = None, level: int = 1
    ) -> None:
        self.folders = [root / "a", root / "b"]
        self.node_id = node_id
        self.config = root / "node.properties"
        root.mkdir(parents=True, exist_ok=True)
        self.write_config()
        self._epochs = epochs or {node_id: 7}
        self._level = level

    def write_config(self, *more: str, folders: list[Path] | None = None) -> None:
        folders = folders or self.folders
        lines = [
            f"node.id={self.node_id}",
            f"controller.quorum.voters={self.node_id}@localhost:19093",
            "listeners=PLAINTEXT://localhost:19092,CONTROLLER://localhost:19093",
            f"log.dirs={','.join(map(str, folders))}",
            *more,
        ]
        self.config.write_text("\n".join(lines))

    def fill(self) -> FakeNode:
        for folder in self.folders:
            directory = LogDirectory.open(
                RealDisk(),
                str(folder),
                node_id=self.node_id,
                cluster_id=CLUSTER,
                new_directory_id=lambda: UUID(int=self.node_id),
            )
            directory.write_high_watermarks({ORDERS: 15})
            directory.write_clean_shutdown_file(self._epochs[self.node_id])
        partition = self.folders[0] / "orders-0"
        partition.mkdir()
        for base in (0, 10, 20):
            (partition / f"{base:020}.log").write_bytes(b"segment %d" % base)
        (partition / f"{0:020}.index").write_bytes(b"index")
        self._write_metadata()
        return self

    def _write_metadata(self) -> None:
        """Each broker is registered by the record at the offset that is its epoch."""
        records: list[Record] = [
            ControllerElected(1, 1),
            ClusterNamed(CLUSTER),
            FeatureChanged(RAFTLOG_METADATA_VERSION, self._level),
        ]
        by_epoch = {epoch: broker_id for broker_id, epoch in self._epochs.items()}
        for offset in range(len(records), max(by_epoch) + 1):
            broker_id = by_epoch.get(offset, 99)
            records.append(BrokerRegistered(broker_id, UUID(int=offset), (), None, ()))
        batches = [Batch(1, offset, (record,)) for offset, record in enumerate(records)]
        entries = [
            (COMMAND_PREFIX + encode_batch(each), number, 1) for number, each in enumerate(batches, start=1)
        ]
        folder = self.folders[0] / METADATA_FOLDER
        folder.mkdir()
        file = encode_file(self.node_id, entries=entries, term=1, voted_for=1, commit_index=99)
        (folder / NAME).write_bytes(file)
        self.entries, self.batches = entries, batches

    def take_snapshot(self) -> None:
        """Leave one snapshot of all the metadata, and the two entries that a voter keeps before it."""
        image = EMPTY_IMAGE
        for batch in self.batches:
            image = apply_batch(image, batch) or image
        snapshot = Snapshot(self.entries[-2], self.entries[-1], encode_image(image))
        folder = self.folders[0] / METADATA_FOLDER
        (folder / f"{len(self.entries):020}.snapshot").write_bytes(encode_snapshot(snapshot))

    def tree(self) -> dict[str, bytes]:
        """Return all files, without locks."""
        return {
            f"{number}/{path.relative_to(folder)}": path.read_bytes()
            for number, folder in enumerate(self.folders)
            for path in folder.rglob("*")
            if path.is_file() and path.name != ".lock"
        }


def run(*arguments: object) -> tuple[int, str]:
    """Return exit code and complaints, a line of which is never a traceback's."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert "Traceback" not in result.stderr
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stderr


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return FakeNode(tmp_path / "node").fill()


@pytest.fixture
def copy(node: FakeNode, tmp_path: Path) -> Path:
    """The backup of the node."""
    code, complaint = run("backup", "-c", node.config, tmp_path / "backup")
    assert code == 0, complaint
    return tmp_path / "backup"


@pytest.fixture
def other(tmp_path: Path) -> FakeNode:
    """An empty node with the same id."""
    return FakeNode(tmp_path / "other")


def test_a_restored_node_has_every_byte_that_was_backed_up(node, copy, other):
    """Both log.dirs, the metadata, the marker of the clean stop; and the backup itself stays whole."""
    assert run("restore", "-c", other.config, copy) == (
        0,
        "raftlog: no other node's backup is here, so it was not checked that they belong together;"
        " put them into one folder and use raftlog restore --check. If the cluster has run since, this node is trusted "
        "with none of its records: it gets them from the others\n",
    )
    assert other.tree() == node.tree()
    (other.folders[0] / "orders-0" / f"{0:020}.log").write_bytes(b"changed")
    assert run("restore", "--check", copy)[0] == 0


def test_a_restored_voter_does_not_remember_the_others(node, tmp_path, other):
    """The voters' backups were made in sequence, and each would take the others for older copies."""
    for name in (OWN, OTHERS):
        write_checked(RealDisk(), str(node.folders[0] / METADATA_FOLDER / name), b"history\n")
    assert run("backup", "-c", node.config, tmp_path / "backup")[0] == 0
    assert run("restore", "-c", other.config, tmp_path / "backup")[0] == 0
    kept = {Path(name).name for name in other.tree()}
    assert OWN in kept and not {OTHERS, OTHERS + CHECKSUMS} & kept


def test_only_segments_below_the_high_watermark_that_others_follow_are_linked(node, copy):
    """A follower may truncate what is above it in place, and the last segment is appended to."""
    partition = copy / "node-1" / "0" / "orders-0"
    links = {path.name: path.stat().st_nlink for path in partition.iterdir()}
    assert links == {
        f"{0:020}.log": 2,
        f"{0:020}.index": 1,
        f"{10:020}.log": 1,
        f"{20:020}.log": 1,
    }
    with (node.folders[0] / "orders-0" / f"{10:020}.log").open("r+b") as file:
        file.truncate(3)
    assert run("restore", "--check", copy)[0] == 0


def test_files_are_copied_where_hard_links_are_not_supported(node, tmp_path, monkeypatch):
    """As on another file system."""

    def refuse(source: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link", str(source))

    monkeypatch.setattr(os, "link", refuse)
    assert run("backup", "-c", node.config, tmp_path / "backup")[0] == 0
    assert {each.stat().st_nlink for each in (tmp_path / "backup").rglob("*.log")} == {1}


@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "grow"])
@pytest.mark.parametrize("how", ["check", "restore"])
def test_a_damaged_backup_is_refused_by_the_files_name(copy, other, harm, how):
    """And no node starts on the part of it that was restored."""
    file = copy / "node-1" / "0" / "orders-0" / f"{20:020}.log"
    whole = file.read_bytes()
    if harm == "remove":
        file.unlink()
    else:
        file.write_bytes({"flip": b"S" + whole[1:], "cut": whole[:-1], "grow": whole + b"."}[harm])
    code, complaint = (
        run("restore", "--check", copy) if how == "check" else run("restore", "-c", other.config, copy)
    )
    assert (code, str(file) in complaint) == (8, True)
    if how == "restore" and harm == "remove":
        assert not other.folders[0].exists()
    elif how == "restore":
        with pytest.raises(ForeignLogDirectory, match="restore-unfinished"):
            LogDirectory.open(
                RealDisk(),
                str(other.folders[1]),
                node_id=1,
                cluster_id=None,
                new_directory_id=lambda: UUID(int=1),
            )
        code, complaint = run("restore", "-c", other.config, copy)
        assert code == 4


def change_manifest(copy: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Do something to what the manifest of node 1's backup says."""
    manifest = copy / "node-1" / "raftlog-backup.json"
    found = json.loads(manifest.read_text())
    change(found)
    manifest.write_text(json.dumps(found))


@pytest.mark.parametrize(
    "path",
    [
        "../evil",
        "0/../../evil",
        "/etc/evil",
        "7/evil",
        "evil",
        "0//etc/evil",
        "./0/evil",
        "0/./evil",
        "0/.lock",
    ],
)
def test_a_manifest_writes_nowhere_but_into_the_data_folders(copy, other, path):
    """Paths are looked at before anything is written."""
    change_manifest(copy, lambda found: found["files"][0].update(path=path))
    code, complaint = run("restore", "-c", other.config, copy)
    assert (code, "is not a path inside a backup" in complaint) == (8, True)
    assert not other.folders[0].exists()


def test_no_path_from_a_backup_leads_out_of_the_restored_folders(copy, other, tmp_path):
    """An absolute path after `0/` is one once it is joined to a folder, and the backup has a file at that place."""
    evil = tmp_path / "evil"
    inside = copy / "node-1" / "0" / evil.relative_to("/")
    inside.parent.mkdir(parents=True)
    inside.write_bytes(b"evil")
    stored = {"path": f"0/{evil}", "size": 4, "sha256": hashlib.sha256(b"evil").hexdigest()}
    change_manifest(copy, lambda found: found["files"].append(stored))
    assert run("restore", "-c", other.config, copy)[0] == 8
    assert not evil.exists()


@pytest.mark.parametrize("where", ["orders-0", f"orders-0/{0:020}.log"])
def test_a_link_that_leads_out_of_a_backup_is_refused(copy, other, tmp_path, where):
    """A file or a folder of it, even if what it leads to is as the manifest says."""
    place = copy / "node-1" / "0" / where
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    for arguments in (("--check", copy), ("-c", other.config, copy)):
        code, complaint = run("restore", *arguments)
        assert (code, "the path is outside" in complaint) == (8, True)
    assert not other.folders[0].exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"log_folders": 10**15}, f"{10**15} folders, and 17 files"),
        ({"metadata_folder": 10**15}, f"{10**15 + 1} folders, and 17 files"),
        ({"log_folders": 0, "metadata_folder": -1}, "0 folders, and 17 files"),
        ({"files": []}, "2 folders, and 0 files"),
    ],
)
def test_a_manifest_has_no_more_folders_than_files(copy, change, complaint):
    """Each has its meta.properties, so a number alone takes no memory."""
    change_manifest(copy, lambda found: found.update(change))
    code, told = run("restore", "--check", copy)
    assert (code, complaint in told) == (8, True)


def test_a_manifest_names_each_file_once_and_no_negative_size(copy):
    """The first would end a restore in the middle, the second makes room that there is not."""
    change_manifest(copy, lambda found: found["files"].append(found["files"][0]))
    assert run("restore", "--check", copy)[1].endswith("damaged: it names a file twice\n")
    change_manifest(copy, lambda found: found["files"].pop())
    change_manifest(copy, lambda found: found["files"][0].update(size=-1))
    code, complaint = run("restore", "--check", copy)
    assert (code, "raftlog-backup.json: damaged: Expected `int` >= 0" in complaint) == (8, True)


@pytest.mark.parametrize("what", ["folder", "file", "gone", "fifo"])
def test_files_that_a_backup_cannot_have_are_reported_before_any_copy(node, tmp_path, what):
    """A node follows links, so a partition behind a link would be missing in the copy."""
    place = node.folders[1] / "payments-0"
    if what == "fifo":
        os.mkfifo(place)
    else:
        target = {"folder": tmp_path, "file": node.config, "gone": tmp_path / "gone"}[what]
        place.symlink_to(target)
    code, complaint = run("backup", "-c", node.config, tmp_path / "backup")
    assert (code, f"{place}: not a regular file or a directory" in complaint) == (1, True)
    assert not (tmp_path / "backup").exists()


def test_names_that_are_no_text_are_reported_before_any_copy(node, tmp_path):
    """The manifest is text; names with line ends are."""
    (node.folders[1] / "a\nb").write_bytes(b"x")
    assert run("backup", "-c", node.config, tmp_path / "first")[0] == 0
    assert run("restore", "--check", tmp_path / "first")[0] == 0
    (node.folders[1] / os.fsdecode(b"\xff")).write_bytes(b"x")
    code, complaint = run("backup", "-c", node.config, tmp_path / "second")
    assert (code, "the name is not UTF-8" in complaint) == (1, True)
    assert not (tmp_path / "second").exists()


def test_a_folder_that_cannot_be_read_is_no_empty_one(tmp_path):
    """Otherwise its partitions would be missing in a backup that calls itself finished."""
    with raises_errno(errno.ENOENT, tmp_path / "gone"):
        backup_files.files_below(tmp_path / "gone")


def test_a_disk_that_cannot_read_a_file_is_reported_with_the_files_name(tmp_path):
    """The system names none. /proc/self/mem fails so at its beginning, which is no memory."""
    broken = Path("/proc/self/mem")
    with pytest.raises(OSError, match=str(broken)):
        backup_files.measure(broken)
    with pytest.raises(OSError, match=str(broken)):
        backup_files.copy(broken, tmp_path / "copy")


def test_only_its_owner_may_read_a_backup(copy):
    """It has all records, and what passwords are checked by."""
    assert stat.S_IMODE((copy / "node-1").stat().st_mode) == 0o700


def test_two_backups_of_a_node_do_not_belong_together(copy, tmp_path):
    """For example after the first was moved aside."""
    shutil.copytree(copy / "node-1", copy / "node-1.old")
    code, complaint = run("restore", "--check", copy)
    assert (code, "are both of node 1: keep one of them" in complaint) == (1, True)


def test_a_broker_that_is_missing_in_a_backup_is_reported(tmp_path):
    """The metadata knows it; it may have been the last broker in sync."""
    epochs = {1: 3, 2: 4, 3: 5}
    for node_id in (1, 2):
        node = FakeNode(tmp_path / str(node_id), node_id, epochs=epochs).fill()
        assert run("backup", "-c", node.config, tmp_path / "backup")[0] == 0
    other = FakeNode(tmp_path / "other")
    for arguments in (("--check", tmp_path / "backup"), ("-c", other.config, tmp_path / "backup")):
        code, complaint = run("restore", *arguments)
        assert (code, "no backup of node 3 is here" in complaint) == (0, True)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1}', '{"format": "x"}'])
def test_a_damaged_manifest_is_refused(copy, content):
    """By its name."""
    manifest = copy / "node-1" / "raftlog-backup.json"
    manifest.write_text(content)
    code, complaint = run("restore", "--check", copy)
    assert (code, f"{manifest}: damaged" in complaint) == (8, True)


def test_a_backup_without_a_manifest_is_unfinished(node, copy):
    """It is written last; what is there is neither restored nor overwritten."""
    (copy / "node-1" / "raftlog-backup.json").unlink()
    assert "no finished backup" in run("restore", "--check", copy)[1]
    code, complaint = run("backup", "-c", node.config, copy)
    assert (code, "has an unfinished backup; remove it" in complaint) == (4, True)


def test_the_backup_of_another_node_or_cluster_is_refused(copy, tmp_path):
    """Voters' votes and replicas belong to one id; folders that were formatted belong to one cluster."""
    stranger = FakeNode(tmp_path / "stranger", 2)
    code, complaint = run("restore", "-c", stranger.config, copy)
    assert (code, "has no backup of node 2, only of 1" in complaint) == (3, True)
    formatted = FakeNode(tmp_path / "formatted")
    assert run("format", "-c", formatted.config, "-t", "another")[0] == 0
    code, complaint = run("restore", "-c", formatted.config, copy)
    assert (code, "belongs to node 1 of cluster another, and is to be" in complaint) == (4, True)
    named = FakeNode(tmp_path / "named")
    named.write_config("cluster.id=another")
    assert "the config says cluster.id=another" in run("restore", "-c", named.config, copy)[1]


def test_only_empty_folders_of_the_same_number_are_restored_into(copy, other):
    """Files are never overwritten; a folder that was formatted for this cluster counts as empty."""
    other.write_config(folders=other.folders[:1])
    assert "has 2 log.dirs, and the config 1" in run("restore", "-c", other.config, copy)[1]
    other.write_config(f"metadata.log.dir={other.folders[1]}")
    assert "metadata.log.dir was in a different position" in run("restore", "-c", other.config, copy)[1]
    other.write_config()
    other.folders[1].mkdir(parents=True)
    (other.folders[1] / "photo.jpg").write_bytes(b"x")
    code, complaint = run("restore", "-c", other.config, copy)
    assert (code, f"{other.folders[1]} is not empty" in complaint) == (4, True)
    (other.folders[1] / "photo.jpg").unlink()
    assert run("format", "-c", other.config, "-t", CLUSTER)[0] == 0
    assert run("restore", "-c", other.config, copy)[0] == 0


def test_a_node_that_runs_or_did_not_stop_cleanly_is_not_backed_up(node, tmp_path):
    """Its files would not be of one moment. No backup is written."""
    with (node.folders[1] / ".lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        code, complaint = run("backup", "-c", node.config, tmp_path / "backup")
        assert (code, "stop the node first" in complaint) == (1, True)
    (node.folders[1] / ".kafka_cleanshutdown").unlink()
    code, complaint = run("backup", "-c", node.config, tmp_path / "backup")
    assert (code, "was not stopped cleanly" in complaint) == (1, True)
    assert not (tmp_path / "backup").exists()


def test_a_backup_is_made_of_data_and_not_inside_of_it(node, other):
    """Empty folders, and a copy of itself."""
    code, complaint = run("backup", "-c", other.config, other.config.parent / "backup")
    assert (code, "no data of a node" in complaint) == (3, True)
    code, complaint = run("backup", "-c", node.config, node.folders[1] / "backup")
    assert (code, "cannot be inside" in complaint) == (2, True)


def test_nodes_that_ran_between_their_backups_do_not_belong_together(tmp_path):
    """The newest metadata knows a later registration of node 1 than its backup does."""
    for node in (
        FakeNode(tmp_path / "one", 1, epochs={1: 3, 2: 4}),
        FakeNode(tmp_path / "two", 2, epochs={1: 6, 2: 4}),
    ):
        assert run("backup", "-c", node.fill().config, tmp_path / "backup")[0] == 0
    code, complaint = run("restore", "--check", tmp_path / "backup")
    assert (code, "node 1 ran again before node 2 was backed up" in complaint) == (1, True)
    assert run("restore", "-c", tmp_path / "one" / "node.properties", tmp_path / "backup")[0] == 1
    assert run("restore", "--check", tmp_path / "backup" / "node-1")[0] == 0


def names_in(folder: Path) -> set[str]:
    """Return the clusters in a restored node's metadata, as `raftlog metadata dump` prints them."""
    result = CliRunner().invoke(app, ["metadata", "dump", str(folder), "-J"])
    assert result.exit_code == 0, result.stderr
    return {row["cluster_id"] for row in json.loads(result.stdout)["cluster"]}


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_copy_with_a_new_id_is_another_cluster_in_all_that_it_keeps(node, tmp_path, other, snapshot):
    """Folders, metadata log and snapshot; the backup, and all that is no name, stay as they are."""
    if snapshot:
        node.take_snapshot()
    assert run("backup", "-c", node.config, tmp_path / "backup")[0] == 0
    assert run("restore", "-c", other.config, tmp_path / "backup", "--new-cluster-id", "a-copy")[0] == 0
    assert names_in(other.folders[0]) == {"a-copy"}
    for folder in other.folders:
        found = LogDirectory.open(
            RealDisk(), str(folder), node_id=1, cluster_id="a-copy", new_directory_id=lambda: UUID(int=9)
        )
        assert (found.directory_id, found.clean_broker_epoch) == (UUID(int=1), 7)
    before, after = node.tree(), other.tree()
    renamed = {name for name in before if before[name] != after.get(name)}
    assert all(
        "meta.properties" in each or METADATA_FOLDER in each or "cleanshutdown" in each for each in renamed
    )
    assert not any(CLUSTER.encode() in content for content in after.values())
    assert run("restore", "--check", tmp_path / "backup")[0] == 0


@pytest.mark.parametrize("wrong", ["", "a b", "x" * 65, "a\nnode.id=2", CLUSTER])
def test_a_new_id_must_be_one_and_another(copy, other, wrong):
    """Before anything is written."""
    code, complaint = run("restore", "-c", other.config, copy, "--new-cluster-id", wrong)
    assert (code, "--new-cluster-id: " in complaint) == (2, True)
    assert not other.folders[0].exists()
    assert run("restore", "--check", copy, "--new-cluster-id", "fine")[0] == 2


def test_a_new_id_agrees_with_the_config_and_the_folders(copy, other):
    """A config or folder that names a cluster must name the copy."""
    other.write_config("cluster.id=named")
    code, complaint = run("restore", "-c", other.config, copy, "--new-cluster-id", "a-copy")
    assert (code, "--new-cluster-id is a-copy, and the config says cluster.id=named" in complaint) == (
        1,
        True,
    )
    assert "give every node --new-cluster-id" in run("restore", "-c", other.config, copy)[1]
    assert run("format", "-c", other.config, "-t", "named")[0] == 0
    assert run("restore", "-c", other.config, copy, "--new-cluster-id", "named")[0] == 0


def test_the_copy_of_a_cluster_of_level_0_keeps_its_id(tmp_path, other):
    """Brokers of 0.2.0 do not distinguish clusters, so the two could mix; the message says what to do."""
    assert run("backup", "-c", FakeNode(tmp_path / "old", level=0).fill().config, tmp_path / "backup")[0] == 0
    code, complaint = run("restore", "-c", other.config, tmp_path / "backup", "--new-cluster-id", "a-copy")
    assert (code, "run `raftlog cluster upgrade`" in complaint) == (1, True)
    assert not list(other.folders[0].iterdir() if other.folders[0].exists() else [])
    assert run("restore", "-c", other.config, tmp_path / "backup")[0] == 0


@pytest.mark.parametrize("content", ["garbage", '{"version":0}', "[]", '{"brokerEpoch":"x"}'])
def test_a_damaged_marker_of_the_clean_stop_is_reported(node, tmp_path, content):
    """The message says whether the node ran again since; no backup is written."""
    (node.folders[1] / ".kafka_cleanshutdown").write_text(content)
    code, complaint = run("backup", "-c", node.config, tmp_path / "backup")
    assert (code, ".kafka_cleanshutdown: damaged" in complaint) == (1, True)
    assert not (tmp_path / "backup").exists()


@pytest.mark.parametrize("name", ["meta.properties", f"{METADATA_FOLDER}/{NAME}"])
def test_a_damaged_folder_is_reported_before_any_copy(node, tmp_path, name):
    """Otherwise an unfinished backup would stay behind."""
    (node.folders[0] / name).write_bytes(b"\xff\xfe")
    code, complaint = run("backup", "-c", node.config, tmp_path / "backup")
    assert (code, str(node.folders[0] / name) in complaint) == (8, True)
    assert not (tmp_path / "backup").exists()


def test_a_full_disk_is_reported_with_the_file_and_what_to_do(node, tmp_path, copy, other, monkeypatch):
    """The system names no file; what is unfinished is neither a backup nor a node."""

    def refuse(descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup_files.os, "fsync", refuse)
    target = tmp_path / "second" / "node-1"
    code, complaint = run("backup", "-c", node.config, tmp_path / "second")
    assert code == 1
    assert (
        f"{target}/0/" in complaint
        and f"No space left on device; {target} is unfinished: remove it" in complaint
    )
    code, complaint = run("restore", "-c", other.config, copy)
    assert (code, "the restore is unfinished: empty the node's folders" in complaint) == (1, True)


@pytest.mark.parametrize("while_linked", [False, True])
def test_ctrl_c_says_that_the_folder_is_unfinished(node, tmp_path, monkeypatch, while_linked):
    """While files are copied, and while the linked files are read."""

    def interrupted(*_asked: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(backup_files, "measure" if while_linked else "copy", interrupted)
    target = tmp_path / "second" / "node-1"
    code, complaint = run("backup", "-c", node.config, tmp_path / "second")
    assert (code, f"raftlog: interrupted; {target} is unfinished: remove it" in complaint) == (130, True)


def test_a_restore_that_has_no_room_is_not_begun(copy, other, monkeypatch):
    """All folders of one disk count together."""
    size = sum(
        each["size"] for each in json.loads((copy / "node-1" / "raftlog-backup.json").read_text())["files"]
    )
    room = shutil.disk_usage(copy)._replace(free=size - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: room)
    code, complaint = run("restore", "-c", other.config, copy)
    assert (code, "the backup needs" in complaint) == (1, True)
    assert not any(each.name != ".lock" for folder in other.folders for each in folder.iterdir())
    monkeypatch.setattr(shutil, "disk_usage", lambda path: room._replace(free=size))
    assert run("restore", "-c", other.config, copy)[0] == 0


def test_a_manifest_that_names_another_cluster_than_the_files_is_refused(copy, other):
    """The node would start in a cluster that its metadata does not know."""
    manifest = copy / "node-1" / "raftlog-backup.json"
    manifest.write_text(manifest.read_text().replace(CLUSTER, "another"))
    for arguments in (("--check", copy), ("-c", other.config, copy)):
        code, complaint = run("restore", *arguments)
        assert (code, "it names node 1 of cluster the-cluster" in complaint) == (8, True)
    assert not other.folders[0].exists()
