"""House rule: every small file is written by `raftlog.base.disk.write_file`, and every folder made by `make_folders`.

After a power cut a file that was merely written may be empty, and a name that was merely given may be gone. The
function writes beside, syncs, renames and syncs the folder. Other places that write stand in a table here, each with
the reason why it is another. The tables only shrink.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import pytest

from tests.house.source import ROOT, Module, every_module, functions_of, judge, modules_under, nodes_of

WRITERS = {
    # the function itself, and the port that the storage of nodes stands on
    "raftlog/base/disk.py:RealDisk.mkdir": "the port; its callers sync the parent once for many folders",
    "raftlog/base/disk.py:RealDisk.open": "segments, indexes and journals, whose owners sync them",
    "raftlog/base/disk.py:RealDisk.rename": "the port; its callers sync the folder",
    "raftlog/base/disk.py:make_folders": "is the function",
    "chaos/raftlog_chaos/scenarios/quorum_cluster.py:QuorumCluster.wipe": "a simulated disk, emptied",
    "chaos/raftlog_chaos/simulator/cluster.py:SimCluster.wipe": "a simulated disk, emptied",
    "raftlog/cli/server.py:_open_standard_descriptors": "opens the null device",
    "raftlog/base/disk.py:put_in_place": "is half of the function, for files that a library wrote",
    "raftlog/base/disk.py:write_file": "is the function",
    # files that grow, are large, or are empty
    "chaos/raftlog_chaos/compare/processes.py:Child.__init__": "another system's log grows line by line",
    "chaos/raftlog_chaos/history.py:HistoryFile.__init__": "grows line by line, and is read up to its last whole line",
    "chaos/raftlog_chaos/runs/folder.py:new_folder": "must be a new folder; a run begins anew after a power cut",
    "raftlog/base/audit_file.py:AuditFile._open": "grows line by line, and may be rotated away",
    "raftlog/cli/backup/files.py:copy": "large files, copied in pieces and synced before the manifest names them",
    "raftlog/cli/backup/files.py:link": "a name for what is on the disk; the manifest follows its folder's sync",
    "raftlog/process.py:locked": "a lock holds nothing",
    "raftlog/testing/in_process.py:NodeThread._run": "a node's log grows line by line",
    "raftlog/testing/node_process.py:NodeProcess.start": "a node's log grows line by line",
    "raftlog/testing/shared_cluster.py:_lock": "a lock holds nothing",
    "raftlog/testing/snapshots.py:copy_data": "copies for a test to go back to; they end with it",
    "raftlog/testing/snapshots.py:replace_data": "as above",
    # power cuts in a guest kernel: the host's own power does not fail, and the guest's does what it must
    "chaos/raftlog_chaos/power_cut/book.py:Book.__init__": "grows line by line",
    "chaos/raftlog_chaos/power_cut/campaign.py:Campaign.__init__": "must be a new folder",
    "chaos/raftlog_chaos/power_cut/image.py:make_image": "a disk of a gigabyte, all holes",
    "chaos/raftlog_chaos/power_cut/inside.py:SerialLine.__init__": "a serial line",
    "chaos/raftlog_chaos/power_cut/inside.py:prepare": "mount points in memory",
    "chaos/raftlog_chaos/power_cut/kernel.py:Guest.__init__": "the guest kernel's log grows line by line",
    # no disk, or no file that outlives the process
    "chaos/raftlog_chaos/bench/measure.py:fdatasync_latency": "measures syncs",
    "chaos/raftlog_chaos/growth/counted/sitecustomize.py:_end": "a count for the process beside it; needs no raftlog",
    "raftlog/broker/links/tls.py:_in_memory": "a key that shall be on no disk",
    "raftlog/cli/__init__.py:_prints_help": "/dev/null",
    "raftlog/cli/background.py:continue_in_background.ready": "a log grows line by line",
    "raftlog/cli/check.py:run": "a copy of standard input, deleted at the end",
    "raftlog/cli/doctor/machine.py:_sync_time": "measures syncs",
    "raftlog/cli/spark_log.py:SparkLog.__init__": "what Spark says, deleted where all goes well",
    "raftlog/cli/spark_log.py:SparkLog.inherited": "as above",
    "raftlog/cli/tree.py:Tree.invoke": "/dev/null",
    "raftlog/testing/delay_link.py:_open_device": "settings of the kernel in a network namespace",
    # simulates power cuts and rot for nodes made for it, and does not survive a real power cut
    "raftlog/faults/forgetful_disk.py:ForgetfulDisk.__init__": "keeps what a played power cut brings back",
    "raftlog/faults/forgetful_disk.py:ForgetfulDisk._remove": "as above",
    "raftlog/faults/forgetful_disk.py:ForgetfulDisk.mkdir": "the port; see RealDisk",
    "raftlog/faults/forgetful_disk.py:ForgetfulDisk.open": "the port; see RealDisk",
    "raftlog/faults/forgetful_disk.py:ForgetfulDisk.rename": "the port; see RealDisk",
    "raftlog/faults/harm.py:_flip": "damages a file",
    "raftlog/faults/power_cut.py:_cut_file": "damages a file",
    "raftlog/faults/power_cut.py:_undo_name": "takes a name back that was not synced",
    "raftlog/faults/unsynced.py:Journal._write_anew": "what a played power cut would take",
}
"""Functions that write, rename or link files, or make folders, by other means, and why."""

UNSYNCED = {
    "raftlog/storage/producer_snapshots.py:save": "carries a checksum; a lost one is made anew from the log",
}
"""Callers of `write_file` that leave out the syncs, and why."""

OPENED_FOR_WRITING = frozenset("wax+")
OF_PATHS = frozenset({"mkdir", "symlink_to", "hardlink_to", "touch", "write_bytes", "write_text"})
OF_OS = frozenset({"link", "makedirs", "mkdir", "rename", "renames", "replace", "symlink"})
OF_SHUTIL = frozenset({"copy", "copy2", "copyfile", "copytree", "move"})
OF_TEMPFILE = frozenset({"NamedTemporaryFile", "TemporaryFile", "mkstemp"})


def places(module: Module, wanted: Callable[[ast.Call], bool]) -> Iterator[str]:
    """Yield the label of the innermost function around each call of a module that is wanted."""
    for call in filter(wanted, nodes_of(module.tree, ast.Call)):
        around = [
            (each.node.lineno, each.label)
            for each in functions_of(module)
            if each.node.lineno <= call.lineno <= (each.node.end_lineno or each.node.lineno)
        ]
        yield max(around, default=(0, f"{module.name}:"))[1]


def modules() -> Iterator[Module]:
    yield from every_module()
    yield from modules_under(ROOT / "pyspark_raftlog")


def writes(call: ast.Call) -> bool:
    """Return whether a call writes a file, names a file, or makes a folder, by other means than a `Disk` or
    `write_file`.
    """
    function = call.func
    if isinstance(function, ast.Name):
        return (function.id == "open" and _mode_writes(call, 1)) or function.id in OF_TEMPFILE
    if not isinstance(function, ast.Attribute):
        return False
    owner, name = ast.unparse(function.value), function.attr
    if owner == "os":
        return name in OF_OS or (name == "open" and _flags_write(call))
    if owner in ("shutil", "tempfile"):
        return name in OF_SHUTIL | OF_TEMPFILE
    if name == "open":
        return _mode_writes(call, 0)
    if name in (
        "rename",
        "replace",
    ):  # of a Path: a Disk and a str take two arguments, a journal's file takes one argument
        return len(call.args) == 1 and not call.keywords and owner.split(".")[-1] not in ("self", "_wal")
    if name in ("mkdir", "touch"):  # of a Path: a Disk's and a broker's take what it is about
        return not any(isinstance(each, ast.Name | ast.Attribute | ast.JoinedStr) for each in call.args)
    return name in OF_PATHS


def _mode_writes(call: ast.Call, position: int) -> bool:
    given = [
        *call.args[position : position + 1],
        *(each.value for each in call.keywords if each.arg == "mode"),
    ]
    modes = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return any(set(mode) & OPENED_FOR_WRITING and set(mode) <= set("rwaxbt+") for mode in modes)


def _flags_write(call: ast.Call) -> bool:
    flags = ast.unparse(call.args[1])
    return "O_" not in flags or any(each in flags for each in ("O_WRONLY", "O_RDWR", "O_CREAT"))


def leaves_out_syncs(call: ast.Call) -> bool:
    """Whether a call of `write_file` says False for `sync`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name == "write_file" and any(
        each.arg == "sync" and isinstance(each.value, ast.Constant) and not each.value.value
        for each in call.keywords
    )


def test_every_small_file_is_written_by_the_one_function() -> None:
    """`raftlog dev` left an empty dev.json behind on xfs where the power failed, and did not start again."""
    judge({label for module in modules() for label in places(module, writes)}, frozenset(WRITERS))


def test_syncs_are_left_out_for_a_reason() -> None:
    """After a power cut, the new name of a replaced file may be an empty file."""
    found = {label for module in modules() for label in places(module, leaves_out_syncs)}
    judge(found, frozenset(UNSYNCED))


@pytest.mark.parametrize(
    "line",
    (
        "path.write_text('x')",
        "(folder / 'x').write_bytes(b'')",
        "open(path, 'w')",
        "open(path, mode='ab')",
        "path.open('x', encoding='utf-8')",
        "os.open(path, os.O_WRONLY | os.O_CREAT)",
        "os.open(path, flags)",
        "os.replace(one, other)",
        "fresh.replace(path)",
        "path.touch(mode=0o600)",
        "folder.mkdir(parents=True, exist_ok=True)",
        "folder.mkdir(0o700)",
        "os.makedirs(folder, exist_ok=True)",
        "shutil.copyfile(one, other)",
    ),
)
def test_the_rule_sees_what_it_is_for(line: str) -> None:
    """Every way to write a file that Python offers and this code has used."""
    assert [writes(each) for each in ast.walk(ast.parse(line)) if isinstance(each, ast.Call)] == [True]


@pytest.mark.parametrize(
    "line",
    (
        "open(path)",
        "path.open('rb')",
        "os.open(path, os.O_RDONLY | os.O_DIRECTORY)",
        "text.replace('a', 'b')",
        "replicas.touch(partition)",
        "disk.rename(one, other)",
        "disk.mkdir(path)",
        "self._wal.replace(image)",
        "self.replace(image)",
        "log.open(disk, directory, config=config)",
    ),
)
def test_the_rule_lets_reading_and_the_disks_port_be(line: str) -> None:
    """The simulator judges the storage of nodes: its disk forgets unsynced writes."""
    assert [writes(each) for each in ast.walk(ast.parse(line)) if isinstance(each, ast.Call)] == [False]
