"""A folder of log.dirs: its owner, checkpoints, clean-shutdown marker, in Kafka's formats (KIP-858, KIP-966)."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from raftlog.base.checked_files import CHECKSUMS, write_checked
from raftlog.base.disk import RealDisk
from raftlog.base.types import TopicPartition
from raftlog.storage.log_directory import (
    MAX_INCARNATIONS,
    ForeignLogDirectory,
    LogDirectory,
    decode_offsets,
)
from raftlog.storage.partition_files import (
    decode_partition_metadata,
    decode_uuid,
    encode_partition_metadata,
    encode_uuid,
)
from raftlog_chaos.simulator.disk import SimDisk
from tests.kit.errors import raises_errno

ID = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)


@pytest.fixture
def open_directory() -> Callable[..., LogDirectory]:
    """Open /data/logs on one simulated disk; call again to start anew."""
    disk = SimDisk(0)

    def open_(*, node_id: int = 1, cluster_id: str | None = "c") -> LogDirectory:
        return LogDirectory.open(
            disk, "/data/logs", node_id=node_id, cluster_id=cluster_id, new_directory_id=lambda: ID
        )

    open_.disk = disk  # type: ignore[attr-defined]
    return open_


def test_a_new_directory_is_marked_as_this_nodes(open_directory: Callable[..., LogDirectory]) -> None:
    """meta.properties holds version 1, node.id, cluster.id and a directory.id that stays."""
    directory = open_directory()
    assert directory.directory_id == ID
    text = open_directory.disk.read_file("/data/logs/meta.properties").decode()  # type: ignore[attr-defined]
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == ["cluster.id=c", f"directory.id={encode_uuid(ID)}", "node.id=1", "version=1"]
    again = LogDirectory.open(
        open_directory.disk,  # type: ignore[attr-defined]
        "/data/logs",
        node_id=1,
        cluster_id=None,
        new_directory_id=lambda: UUID(int=5),  # type: ignore[attr-defined]
    )
    assert (again.directory_id, again.cluster_id) == (ID, "c")


@pytest.mark.parametrize("other", [{"node_id": 2}, {"cluster_id": "d"}])
def test_a_directory_of_another_node_or_cluster_is_refused(
    open_directory: Callable[..., LogDirectory], other: dict[str, object]
) -> None:
    """A data folder of another node or cluster is a clear error that names both."""
    open_directory()
    with pytest.raises(ForeignLogDirectory, match=r"meta\.properties says"):
        open_directory(**other)


def test_the_cluster_id_may_come_later(open_directory: Callable[..., LogDirectory]) -> None:
    """A first start does not know its cluster yet; once written the id binds the folder."""
    directory = open_directory(cluster_id=None)
    assert directory.cluster_id is None
    directory.write_cluster_id("c")
    assert open_directory(cluster_id=None).cluster_id == "c"
    with pytest.raises(ForeignLogDirectory):
        directory.write_cluster_id("other")


def test_the_clean_marker_holds_for_one_start(open_directory: Callable[..., LogDirectory]) -> None:
    """Written last at a clean stop with the broker epoch, gone durably before anything else happens (KIP-966)."""
    directory = open_directory()
    assert (directory.was_clean_shutdown, directory.clean_broker_epoch) == (False, None)
    directory.write_clean_shutdown_file(42)
    disk = open_directory.disk  # type: ignore[attr-defined]
    assert disk.read_file("/data/logs/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    directory = open_directory()
    assert (directory.was_clean_shutdown, directory.clean_broker_epoch) == (True, 42)
    disk.crash()
    assert not open_directory().was_clean_shutdown
    disk.write_file("/data/logs/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":42}')
    assert not open_directory().was_clean_shutdown, "a marker without its checksum"


def test_checkpoints_come_back(open_directory: Callable[..., LogDirectory]) -> None:
    """Each checkpoint is Kafka's text: version, count, `topic partition offset`."""
    offsets = {TopicPartition("t", 0): 5, TopicPartition("a-b.c_d", 12): 2**40}
    directory = open_directory()
    directory.write_recovery_points(offsets)
    directory.write_log_starts({})
    directory.write_high_watermarks(offsets, sync=False)
    disk = open_directory.disk  # type: ignore[attr-defined]
    path = "/data/logs/recovery-point-offset-checkpoint"
    assert disk.read_file(path) == b"0\n2\nt 0 5\na-b.c_d 12 1099511627776\n"
    again = open_directory()
    assert (again.recovery_points, again.log_starts, again.high_watermarks) == (offsets, {}, offsets)
    disk.write_file(path, b"0\n2\nt 0 6\na-b.c_d 12 1099511627776\n")
    assert open_directory().recovery_points == {TopicPartition("a-b.c_d", 12): 2**40}


def test_a_deleted_partition_does_not_come_back_without_its_files() -> None:
    """A power loss may undo the renaming or the removal, but never the renaming alone (endurance seed 52)."""
    for seed in range(20):
        disk = SimDisk(seed, folders=("/data/logs",))
        directory = LogDirectory.open(
            disk, "/data/logs", node_id=1, cluster_id="c", new_directory_id=lambda: ID
        )
        disk.mkdir("/data/logs/t-0")
        disk.write_file("/data/logs/t-0/00000000000000000000.log", b"records")
        disk.sync_dir("/data/logs")
        disk.rename("/data/logs/t-0", "/data/logs/t-0.x-delete")
        directory.remove_folder("/data/logs/t-0.x-delete")
        disk.crash()
        assert directory.partitions() == []


def test_a_partition_of_the_longest_topic_name_can_be_deleted() -> None:
    """Its folder's name leaves no room for what marks it as deleted: an error there would end the log directory."""
    disk = SimDisk(folders=("/data/logs",))
    directory = LogDirectory.open(disk, "/data/logs", node_id=1, cluster_id="c", new_directory_id=lambda: ID)
    partition = TopicPartition("t" * 249, 10_000)
    path = directory.partition_path(partition)
    disk.mkdir(path)
    doomed = directory.rename_for_deletion(path, f"{7:032x}")
    assert doomed.endswith(f".{7:032x}-delete") and disk.is_folder(doomed)
    assert directory.partitions() == []
    assert directory.folders_of_deleted() == [doomed]


def test_a_forgotten_partition_is_in_no_checkpoint(open_directory: Callable[..., LogDirectory]) -> None:
    """Neither on disk, power loss or not, nor in what was read at the start; the others stay."""
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    directory = open_directory()
    for write in (
        directory.write_recovery_points,
        directory.write_log_starts,
        directory.write_high_watermarks,
    ):
        write({here: 5, there: 7})
    directory = open_directory()
    directory.remove_checkpoints([here])
    assert directory.recovery_points == directory.log_starts == directory.high_watermarks == {there: 7}
    open_directory.disk.crash()  # type: ignore[attr-defined]
    again = open_directory()
    assert again.recovery_points == again.log_starts == again.high_watermarks == {there: 7}


@given(garbage=st.binary(max_size=40) | st.sampled_from([b"0\n1\nt 0\n", b"0\n-1\n", b"0\n0", b"1\n0\n"]))
def test_a_garbled_checkpoint_is_a_value_error(garbage: bytes) -> None:
    """Bytes that do not decode raise ValueError: everything is then recovered from its start."""
    try:
        assert all(isinstance(offset, int) for offset in decode_offsets(garbage).values())
    except ValueError:
        pass


DELETED = f"t-1.{255:032x}-delete"


def test_partition_folders_are_distinguished_from_others(open_directory: Callable[..., LogDirectory]) -> None:
    """`topic-partition`, where a topic may hold dashes; not deleted folders and files."""
    directory = open_directory()
    disk = open_directory.disk  # type: ignore[attr-defined]
    for name in ("t-0", "with-dash-3", DELETED, "backup-delete", "t", "-1", "t-x", "t-4-future"):
        disk.mkdir(f"/data/logs/{name}")
    found = [TopicPartition("t", 0), TopicPartition("with-dash", 3)]
    assert directory.partitions() == found
    assert directory.partition_path(found[1]) == "/data/logs/with-dash-3"
    assert directory.folders_of_deleted() == [f"/data/logs/{DELETED}"]


@given(value=st.uuids())
def test_topic_ids_have_kafkas_text_form(value: UUID) -> None:
    """URL-safe base64 without padding, in partition.metadata too."""
    text = encode_uuid(value)
    assert len(text) == 22 and decode_uuid(text) == value
    assert encode_partition_metadata(value) == f"version: 0\ntopic_id: {text}".encode()
    assert decode_partition_metadata(encode_partition_metadata(value) + b"\n") == value


def test_a_directory_names_the_processes_that_opened_it(open_directory: Callable[..., LogDirectory]) -> None:
    """Durably, each before it registers, until the cluster knows a later process (KIP-966)."""
    first, second = UUID(int=1), UUID(int=2)
    directory = open_directory()
    assert directory.incarnations == ()
    directory.note_incarnation(first)
    open_directory.disk.crash()  # type: ignore[attr-defined]
    directory = open_directory()
    directory.note_incarnation(second)
    assert open_directory().incarnations == (first, second)
    directory.confirm_incarnation(second)
    open_directory.disk.crash()  # type: ignore[attr-defined]
    assert open_directory().incarnations == (second,)


def test_a_directory_names_the_first_and_the_newest_processes(
    open_directory: Callable[..., LogDirectory],
) -> None:
    """However many could not register since: the first is the last that registered."""
    directory = open_directory()
    for number in range(MAX_INCARNATIONS + 5):
        directory.note_incarnation(UUID(int=number))
    named = [each.int for each in open_directory().incarnations]
    assert named == [0, *range(6, MAX_INCARNATIONS + 5)]


@pytest.mark.parametrize("text", ["x", "AAAA,", "!!", "é"])
def test_names_that_cannot_be_read_are_none(open_directory: Callable[..., LogDirectory], text: str) -> None:
    """The directory then passes for an older copy, which loses no record."""
    directory = open_directory()
    directory.note_incarnation(UUID(int=1))
    path, disk = "/data/logs/meta.properties", open_directory.disk  # type: ignore[attr-defined]
    lines = disk.read_file(path).decode().splitlines()
    kept = [line for line in lines if not line.startswith("broker.incarnations")]
    write_checked(disk, path, "\n".join([*kept, f"broker.incarnations={text}"]).encode())
    assert open_directory().incarnations == ()


def test_a_name_that_the_disk_refuses_is_not_taken_for_written(
    open_directory: Callable[..., LogDirectory],
) -> None:
    """The next write of the file does not bring it in by the way."""
    directory = open_directory()
    open_directory.disk.fill()  # type: ignore[attr-defined]
    with raises_errno(errno.ENOSPC):
        directory.note_incarnation(UUID(int=1))
    open_directory.disk.make_room()  # type: ignore[attr-defined]
    assert (directory.incarnations, open_directory().incarnations) == ((), ())


CHECKPOINT_FIELDS = ("recovery_points", "log_starts", "high_watermarks", "cleaner_offsets")


def test_whichever_bit_rots_a_directory_believes_what_was_written_or_less() -> None:
    """Each bit of each file, one by one: a line is right or absent, and the log names the file."""
    offsets = {TopicPartition("t", 0): 12, TopicPartition("u", 1): 2_800}
    disk = SimDisk(0, folders=("/data/logs",))

    def opened() -> LogDirectory:
        return LogDirectory.open(
            disk, "/data/logs", node_id=1, cluster_id="c", new_directory_id=lambda: UUID(int=9)
        )

    def restore() -> None:
        for name, content in whole.items():
            disk.write_file(f"/data/logs/{name}", content)

    directory = opened()
    directory.write_recovery_points(offsets)
    directory.write_log_starts(offsets)
    directory.write_high_watermarks(offsets)
    directory.write_cleaner_offsets(offsets)
    directory.write_clean_shutdown_file(42)
    whole = {name: disk.read_file(f"/data/logs/{name}") for name in disk.listdir("/data/logs")}
    assert len(whole) == 12
    for name, content in whole.items():
        for position in range(len(content)):
            restore()
            disk.flip_bit(f"/data/logs/{name}", position, position % 8)
            with capture_logs() as lines:
                found = opened()
            assert found.directory_id == directory.directory_id, (name, position)
            assert found.clean_broker_epoch in (42, None), (name, position)
            for field in CHECKPOINT_FIELDS:
                assert getattr(found, field).items() <= offsets.items(), (name, position, field)
            assert len(lines) == 1, (name, position, lines)
            file = f"/data/logs/{name.removesuffix(CHECKSUMS)}"
            paths = (file, file + CHECKSUMS) if name.endswith(CHECKSUMS) else (file,)
            assert lines[0]["path"] in paths, (name, position)


def test_a_directory_of_raftlog_0_3_is_believed_once() -> None:
    """Its checkpoints have no checksums. After the first start none is believed without, wherever it came from."""
    disk = SimDisk(0)
    offsets = {TopicPartition("t", 0): 5}
    checkpoint = b"0\n1\nt 0 5\n"

    def opened() -> LogDirectory:
        return LogDirectory.open(disk, "/data", node_id=1, cluster_id=None, new_directory_id=lambda: ID)

    disk.write_file(
        "/data/meta.properties", f"version=1\nnode.id=1\ndirectory.id={encode_uuid(ID)}\n".encode()
    )
    disk.write_file("/data/log-start-offset-checkpoint", checkpoint)
    disk.write_file("/data/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":7}')
    first = opened()
    assert (first.log_starts, first.clean_broker_epoch) == (offsets, 7)
    assert opened().log_starts == offsets, "with the checksums that the first start gave it"
    disk.write_file("/data/log-start-offset-checkpoint", checkpoint.replace(b"5", b"9"))
    disk.write_file("/data/recovery-point-offset-checkpoint", checkpoint)
    disk.write_file("/data/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":7}')
    again = opened()
    assert (again.log_starts, again.recovery_points, again.clean_broker_epoch) == ({}, {}, None)


def test_an_identity_that_rotted_with_its_copy_is_refused() -> None:
    """Without it the folder's owner is unknown: the error names both files."""
    disk = SimDisk(0)

    def open_() -> None:
        LogDirectory.open(disk, "/data", node_id=1, cluster_id="c", new_directory_id=lambda: ID)

    open_()
    disk.flip_bit("/data/meta.properties", 4)
    disk.flip_bit(f"/data/meta.properties{CHECKSUMS}", 30)
    with pytest.raises(ForeignLogDirectory, match=r"meta\.properties is corrupt, and so is its copy"):
        open_()


def test_refused_folder_says_how_its_meta_properties_comes_back(tmp_path: Path) -> None:
    """The command in the message puts the copy in place, and the folder is this node's again with its ids."""

    def open_(new_id: UUID) -> LogDirectory:
        return LogDirectory.open(
            RealDisk(), folder, node_id=1, cluster_id="c", new_directory_id=lambda: new_id
        )

    folder = str(tmp_path / "it's data")
    directory = open_(ID)
    directory.write_log_starts({TopicPartition("t", 0): 5})
    meta = Path(folder, "meta.properties")
    written = meta.read_bytes()
    meta.unlink()
    with pytest.raises(ForeignLogDirectory, match=r"its copy is in meta\.properties\.crc32c") as refused:
        open_(UUID(int=5))
    assert f"directory.id={encode_uuid(ID)}" in str(refused.value)
    _, command, _ = str(refused.value).split("`")
    subprocess.run(["/bin/sh", "-c", command], check=True)
    assert meta.read_bytes() == written
    assert open_(UUID(int=5)).directory_id == ID


@pytest.mark.parametrize("lost", ["", "rotten"])
def test_refused_folder_without_a_sound_copy_asks_for_a_backup(tmp_path: Path, lost: str) -> None:
    """A copy that is not there, or has rotted, is not to be put in place."""
    folder = str(tmp_path / "data")

    def open_() -> LogDirectory:
        return LogDirectory.open(RealDisk(), folder, node_id=1, cluster_id="c", new_directory_id=lambda: ID)

    open_().write_log_starts({TopicPartition("t", 0): 5})
    Path(folder, "meta.properties").unlink()
    copy = Path(folder, "meta.properties" + CHECKSUMS)
    copy.write_bytes(copy.read_bytes().replace(b"node.id=1", b"node.id=2") if lost else b"")
    with pytest.raises(ForeignLogDirectory, match=r"meta\.properties .*node\.id.*directory\.id"):
        open_()


def test_directory_id_is_new_once_its_line_and_the_copy_are_removed() -> None:
    """So a voter whose metadata log is lost gets a new id. The line alone comes back from the copy."""
    disk = SimDisk(0)
    path = "/data/meta.properties"

    def open_(new_id: UUID) -> LogDirectory:
        return LogDirectory.open(disk, "/data", node_id=1, cluster_id="c", new_directory_id=lambda: new_id)

    open_(ID)
    lines = disk.read_file(path).splitlines(keepends=True)
    edited = b"".join(line for line in lines if not line.startswith(b"directory.id"))
    disk.write_file(path, edited)
    assert open_(UUID(int=5)).directory_id == ID
    disk.write_file(path, edited)
    disk.remove(path + CHECKSUMS)
    assert open_(UUID(int=5)).directory_id == UUID(int=5)
