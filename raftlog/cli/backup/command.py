"""`raftlog backup` and `raftlog restore`: one stopped node's data folders, copied and brought back.

A cluster's backup consists of all its nodes' backups, if no node ran again until all were made. It then equals a
stopped cluster. Broker epochs show that: a node that ran again has registered again.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from raftlog import __version__
from raftlog.base import variables
from raftlog.base.checked_files import CHECKSUMS, remove_checked, write_checked
from raftlog.base.config import NodeConfig
from raftlog.base.disk import FOLDER_MODE, RealDisk, make_folders
from raftlog.base.errors import UnsupportedVersion
from raftlog.base.types import METADATA_FOLDER
from raftlog.cli.backup import files
from raftlog.cli.backup.files import MANIFEST, Manifest, StoredFile
from raftlog.cli.exits import EXISTS, INTERRUPTED, NOT_FOUND, USAGE, Failure
from raftlog.cli.rows import in_bytes
from raftlog.cli.server import read_config
from raftlog.metadata.features import UnsupportedMetadata
from raftlog.metadata.renaming import check_renaming, rename_in_batch, rename_in_image
from raftlog.quorum.rewritten_journal import forget_others, rewrite_journal
from raftlog.storage.log_directory import CLEAN_SHUTDOWN, META_PROPERTIES

UNFINISHED: Final = "restore-unfinished"
"""The node id in meta.properties while a folder is being restored: no node starts on a part of its data."""
CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")

Config = Annotated[
    Path, typer.Option("--config", "-c", envvar=variables.CONFIG, help="the node's config file")
]


def backup(
    *,
    destination: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="the cluster's backup: a folder node-ID is made in it")
    ],
    config: Config,
) -> int:
    """Back up a stopped node: its logs, with groups' offsets, and the metadata. Do so for every node of the cluster,
    and start none of them before all are done."""
    node = read_config(config, [])
    target = destination / f"node-{node.node_id}"
    advice = f"; {target} is unfinished: remove it"
    with _complaints():
        _refuse_place(node, target)
        with _locked(node):
            cluster_id, broker_epoch = _whose(node)
            metadata = _metadata_of(node)
            found = {folder: files.files_below(folder) for folder in _folders(node)}
            with _complaints(advice):
                make_folders(target, FOLDER_MODE)  # records and users' credentials are in it
                stored, linked = _copy_folders(found, target)
    with _complaints(advice):
        if linked:
            print(
                f"node {node.node_id} is copied; {len(linked)} linked segments are being read",
                file=sys.stderr,
            )
        for each in linked:
            size, checksum = files.measure(target / each)
            stored.append(StoredFile(each, size, checksum))
        offset, broker_epochs = metadata or (None, None)
        manifest = Manifest(
            format=files.FORMAT,
            raftlog=__version__,
            cluster_id=cluster_id,
            node_id=node.node_id,
            taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
            log_folders=len(node.log_dirs),
            metadata_folder=_folders(node).index(Path(node.metadata_log_dir)),
            broker_epoch=broker_epoch,
            metadata_offset=offset,
            broker_epochs=broker_epochs,
            files=stored,
        )
        files.write_manifest(target, manifest)
    print(
        f"{target}: node {node.node_id} of cluster {cluster_id}: {len(stored)} files,"
        f" {in_bytes(manifest.total_bytes)}, of which {len(linked)} segments are hard links"
    )
    return 0


def restore(
    *,
    source: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="the cluster's backup, or the node-ID of one node in it")
    ],
    config: Annotated[
        Path | None, typer.Option("--config", "-c", envvar=variables.CONFIG, help="the node's config file")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="only check: read every file, and that the nodes belong together"),
    ] = False,
    new_cluster_id: Annotated[
        str | None,
        typer.Option(
            "--new-cluster-id",
            metavar="ID",
            help="make the copy a cluster of its own, which never mixes with the original; the same on every node",
        ),
    ] = None,
) -> int:
    """Bring a node's backup back into the empty folders of a node with the same id. Do so for every node of the
    cluster before you start the first."""
    with _complaints():
        found = _find(source)
        _judge_set(found)
        _judge_new_id(new_cluster_id, found, check=check)
        if check:
            _check(found)
            if len(found) > 1:
                _report_missing(found)
            return 0
        if config is None:
            raise Failure("--config is missing: give the config file of the node to restore", USAGE)
        node = read_config(config, [])
        folder = _of_node(found, source, node.node_id)
        _restore(node, folder, found[folder], new_cluster_id or found[folder].cluster_id)
        _report_missing(found)
    return 0


# -- taking -------------------------------------------------------------------------------------------------------


@contextmanager
def _complaints(advice: str = "") -> Iterator[None]:
    """Turn what the file system refuses into a Failure that names the file, and says what to do; and so Ctrl-C."""
    try:
        yield
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise Failure(reason + advice) from None
    except KeyboardInterrupt:
        if not advice:
            raise
        raise Failure("interrupted" + advice, INTERRUPTED) from None


def _folders(node: NodeConfig) -> list[Path]:
    """Return a node's data folders, each once: its log folders first, its metadata folder last."""
    return [Path(each) for each in dict.fromkeys([*node.log_dirs, node.metadata_log_dir])]


@contextmanager
def _locked(node: NodeConfig) -> Iterator[None]:
    """Keep the node from running meanwhile. Raises Failure if it runs."""
    from raftlog.process import NodeFailed, locked

    with ExitStack() as locks:
        try:
            for folder in _folders(node):
                locks.enter_context(locked(str(folder)))
        except NodeFailed as error:
            raise Failure(f"{error}: stop the node first") from None
        yield


def _refuse_place(node: NodeConfig, target: Path) -> None:
    for folder in _folders(node):
        if not (folder / META_PROPERTIES).is_file():
            raise Failure(f"{folder}: no data of a node ({META_PROPERTIES} is missing)", NOT_FOUND)
        if target.resolve().is_relative_to(folder.resolve()):
            raise Failure(
                f"{target}: a backup cannot be inside {folder}, the directory that it copies", USAGE
            )
    if target.exists():
        what = "is there already" if (target / MANIFEST).exists() else "has an unfinished backup; remove it"
        raise Failure(f"{target}: {what}", EXISTS)


def _whose(node: NodeConfig) -> tuple[str, int | None]:
    """Return the cluster id and broker epoch in a stopped node's folders. Raise Failure."""
    names = {}
    for folder in _folders(node):
        found = files.read_identity(folder / META_PROPERTIES)
        if found.get("node.id") != str(node.node_id):
            raise Failure(f"{folder} belongs to node {found.get('node.id')}, not {node.node_id}")
        names[found.get("cluster.id") or ""] = folder
    if len(names) != 1 or "" in names:
        raise Failure(
            f"the folders belong to no cluster, or to several: {', '.join(map(str, names.values()))}"
        )
    return next(iter(names)), _broker_epoch(node)


def _broker_epoch(node: NodeConfig) -> int | None:
    if "broker" not in node.roles:
        return None
    epochs = set()
    for folder in map(Path, node.log_dirs):
        marker = folder / CLEAN_SHUTDOWN
        advice = "start it, stop it with SIGTERM, and back it up then"
        if not marker.is_file():
            raise Failure(f"{folder}: the node was not stopped cleanly; {advice}")
        try:
            epochs.add(int(json.loads(marker.read_bytes())["brokerEpoch"]))
        except (ValueError, KeyError, TypeError):
            raise Failure(f"{marker}: damaged, so it is unknown how the node was stopped; {advice}") from None
    return max(epochs)


def _copy_folders(found: Mapping[Path, Iterable[Path]], target: Path) -> tuple[list[StoredFile], list[str]]:
    """Copy all that may change; returns it, and the paths of segments that were linked."""
    stored, linked = [], []
    for number, (folder, paths) in enumerate(found.items()):
        unchanging = files.unchanging_segments(folder)
        for path in paths:
            name = f"{number}/{path.relative_to(folder).as_posix()}"
            if path in unchanging and files.link(path, target / name):
                linked.append(name)
            else:
                stored.append(StoredFile(name, *files.copy(path, target / name)))
    return stored, linked


def _metadata_of(node: NodeConfig) -> tuple[int, dict[int, int]] | None:
    """Return the offset of a voter's metadata, and all brokers' epochs. Raises Failure if it is damaged."""
    from raftlog.cli.metadata import image_of, open_journal

    if "controller" not in node.roles:
        return None
    image = image_of(open_journal(Path(node.metadata_log_dir)))
    return image.offset, {broker_id: each.broker_epoch for broker_id, each in image.brokers.items()}


# -- bringing back ------------------------------------------------------------------------------------------------


def _find(source: Path) -> dict[Path, Manifest]:
    """Return the nodes' backups in a folder, or the folder itself if it is a backup. Raise Failure."""
    if (source / MANIFEST).exists():
        return {source: files.read_manifest(source)}
    folders = sorted(each for each in source.glob("node-*") if each.is_dir())
    if not folders:
        raise Failure(f"{source}: has no backup of a node", NOT_FOUND)
    return {folder: files.read_manifest(folder) for folder in folders}


def _judge_set(found: dict[Path, Manifest]) -> None:
    """Raise Failure unless these backups are of one cluster, and no node ran between them."""
    first, *others = found.items()
    for folder, each in others:
        if each.cluster_id != first[1].cluster_id:
            raise Failure(
                f"{folder} is of cluster {each.cluster_id}, {first[0]} of cluster {first[1].cluster_id}"
            )
    by_id: dict[int, Path] = {}
    for folder, each in found.items():
        if by_id.setdefault(each.node_id, folder) != folder:
            raise Failure(
                f"{folder} and {by_id[each.node_id]} are both of node {each.node_id}: keep one of them"
            )
    newest = _newest_voter(found)
    for folder, each in found.items():
        known = None if newest is None else (newest.broker_epochs or {}).get(each.node_id)
        if known is not None and each.broker_epoch is not None and known > each.broker_epoch:
            assert newest is not None
            raise Failure(
                f"{folder}: node {each.node_id} ran again before node {newest.node_id} was backed up, so the two are"
                f" not of one time (broker epoch {each.broker_epoch}, then {known}); back up all nodes while none runs"
            )


def _newest_voter(found: dict[Path, Manifest]) -> Manifest | None:
    voters = [each for each in found.values() if each.metadata_offset is not None]
    return max(voters, key=lambda each: each.metadata_offset or 0, default=None)


def _report_missing(found: dict[Path, Manifest]) -> None:
    """Print to standard error which brokers of the cluster have no backup here."""
    if len(found) == 1:
        print(
            "raftlog: no other node's backup is here, so it was not checked that they belong together; put them into "
            "one folder and use raftlog restore --check. If the cluster has run since, this node is trusted with "
            "none of its records: it gets them from the others",
            file=sys.stderr,
        )
        return
    newest = _newest_voter(found)
    known = set() if newest is None else set(newest.broker_epochs or {})
    if missing := sorted(known - {each.node_id for each in found.values()}):
        print(
            f"raftlog: no backup of node {', '.join(map(str, missing))} is here, which the cluster knows: records that"
            " no other node has are lost without it",
            file=sys.stderr,
        )


def _judge_new_id(cluster_id: str | None, found: dict[Path, Manifest], *, check: bool) -> None:
    """Raise Failure for an id that would not distinguish the copy of a cluster from the original."""
    if cluster_id is None:
        return
    if check:
        raise Failure("--check only reads, so it cannot be combined with --new-cluster-id", USAGE)
    if not CLUSTER_ID.fullmatch(cluster_id):
        raise Failure(
            f"--new-cluster-id: {cluster_id!r} is not 1 to 64 letters, digits, dots, dashes and underscores",
            USAGE,
        )
    for folder, each in found.items():
        if each.cluster_id == cluster_id:
            raise Failure(f"--new-cluster-id: {folder} is of cluster {cluster_id}: choose another id", USAGE)


def _check(found: dict[Path, Manifest]) -> None:
    for folder, manifest in found.items():
        files.judge_presence(folder, manifest)
        for each in manifest.files:
            files.judge(folder, each, files.measure(folder / each.path))
        files.judge_identities(folder, manifest)
        print(
            f"{folder}: node {manifest.node_id} of cluster {manifest.cluster_id}, {manifest.taken_at}:"
            f" {len(manifest.files)} files, {in_bytes(manifest.total_bytes)}, sound"
        )


def _of_node(found: dict[Path, Manifest], source: Path, node_id: int) -> Path:
    for folder, manifest in found.items():
        if manifest.node_id == node_id:
            return folder
    nodes = ", ".join(str(each.node_id) for each in found.values())
    raise Failure(f"{source}: has no backup of node {node_id}, only of {nodes}", NOT_FOUND)


def _restore(node: NodeConfig, source: Path, manifest: Manifest, cluster_id: str) -> None:
    targets = _folders(node)
    _judge_shape(node, source, manifest, cluster_id)
    journal = Path(str(manifest.metadata_folder), METADATA_FOLDER)
    renamed = cluster_id != manifest.cluster_id
    files.judge_presence(source, manifest)
    files.judge_identities(source, manifest)
    if renamed and manifest.metadata_offset is not None:
        _judge_metadata(source / journal)
    with _locked(node):
        for target in targets:
            _judge_target(target, manifest, cluster_id)
        _judge_room(manifest, targets)
        with _complaints("; the restore is unfinished: empty the node's folders, and try again"):
            for target in targets:
                _write_properties(target, f"node.id={UNFINISHED}\n".encode(), is_checked=False)
            identities = _copy_back(source, manifest, targets)
            if renamed and manifest.metadata_offset is not None:
                _rename_metadata(targets[manifest.metadata_folder] / METADATA_FOLDER, cluster_id)
            for number, (target, identity) in enumerate(zip(targets, identities, strict=True)):
                is_checked = (source / str(number) / (META_PROPERTIES + CHECKSUMS)).is_file()
                written = _renamed(identity, cluster_id) if renamed else identity
                _write_properties(target, written, is_checked=is_checked)
    for number, target in enumerate(targets):
        count = sum(each.path.startswith(f"{number}/") for each in manifest.files)
        was = f", which is now {cluster_id}" if renamed else ""
        print(f"{target}: {count} files of node {node.node_id} of cluster {manifest.cluster_id}{was}")


def _judge_metadata(journal: Path) -> None:
    """Raise Failure if a copy of the metadata cannot get another cluster's id."""
    from raftlog.cli.metadata import image_of, open_journal

    try:
        check_renaming(image_of(open_journal(journal)))
    except (UnsupportedMetadata, UnsupportedVersion) as error:
        raise Failure(f"--new-cluster-id: {error}") from None


def _rename_metadata(journal: Path, cluster_id: str) -> None:
    rewrite_journal(
        RealDisk(),
        str(journal),
        command=lambda written: rename_in_batch(written, cluster_id),
        state=lambda written: rename_in_image(written, cluster_id),
    )


def _renamed(identity: bytes, cluster_id: str) -> bytes:
    """Return a meta.properties that names another cluster."""
    lines = (
        f"cluster.id={cluster_id}" if line.startswith("cluster.id=") else line
        for line in identity.decode().splitlines()
    )
    return ("\n".join(lines) + "\n").encode()


def _judge_shape(node: NodeConfig, source: Path, manifest: Manifest, cluster_id: str) -> None:
    if node.cluster_id and node.cluster_id != cluster_id:
        is_renamed = cluster_id != manifest.cluster_id
        found = f"--new-cluster-id is {cluster_id}" if is_renamed else f"{source} is of cluster {cluster_id}"
        advice = "" if is_renamed else "; to make the copy that cluster, give every node --new-cluster-id"
        raise Failure(f"{found}, and the config says cluster.id={node.cluster_id}{advice}")
    if len(node.log_dirs) != manifest.log_folders:
        raise Failure(
            f"{source} has {manifest.log_folders} log.dirs, and the config {len(node.log_dirs)}", USAGE
        )
    if _folders(node).index(Path(node.metadata_log_dir)) != manifest.metadata_folder:
        raise Failure(
            f"{source}: metadata.log.dir was in a different position among the directories than in the config",
            USAGE,
        )


def _judge_target(target: Path, manifest: Manifest, cluster_id: str) -> None:
    """Raise Failure unless a folder is empty, or was only formatted for the same node and the cluster-to-be."""
    names = {each.name for each in target.iterdir()} - files.LEFT_OUT
    found = files.read_identity(target / META_PROPERTIES) if META_PROPERTIES in names else {}
    node_id, present = found.get("node.id"), found.get("cluster.id")
    if node_id == UNFINISHED:
        raise Failure(f"{target} has an unfinished restore: empty it first", EXISTS)
    if names - {META_PROPERTIES, META_PROPERTIES + CHECKSUMS}:
        raise Failure(f"{target} is not empty: a backup is only restored into empty folders", EXISTS)
    if names and (node_id != str(manifest.node_id) or present not in (None, cluster_id)):
        raise Failure(
            f"{target} belongs to node {node_id} of cluster {present}, and is to be restored as node"
            f" {manifest.node_id} of cluster {cluster_id}",
            EXISTS,
        )


def _judge_room(manifest: Manifest, targets: list[Path]) -> None:
    """Raise Failure if a disk has not the room for what comes to it."""
    needed: dict[int, int] = {}
    places: dict[int, Path] = {}
    for each in manifest.files:
        target = targets[int(each.path.partition("/")[0])]
        disk = target.stat().st_dev
        places[disk] = target
        needed[disk] = needed.get(disk, 0) + each.size
    for disk, size in needed.items():
        free = shutil.disk_usage(places[disk]).free
        if size > free:
            raise Failure(
                f"{places[disk]}: the backup needs {in_bytes(size)}, and {in_bytes(free)} are free there"
            )


def _copy_back(source: Path, manifest: Manifest, targets: list[Path]) -> list[bytes]:
    """Copy all files and check them; returns what belongs into each folder's meta.properties. Raises Failure."""
    identities: dict[int, bytes] = {}
    for each in manifest.files:
        number, _, name = each.path.partition("/")
        if name in (META_PROPERTIES, META_PROPERTIES + CHECKSUMS):
            files.judge(source, each, files.measure(source / each.path))
            if name == META_PROPERTIES:
                identities[int(number)] = (source / each.path).read_bytes()
        else:
            files.judge(source, each, files.copy(source / each.path, targets[int(number)] / name))
    for target in targets:
        forget_others(RealDisk(), str(target / METADATA_FOLDER))
    for target in targets:
        for folder in sorted((each for each in target.rglob("*") if each.is_dir()), reverse=True):
            RealDisk().sync_dir(str(folder))
    return [identities[number] for number in range(len(targets))]


def _write_properties(target: Path, identity: bytes, *, is_checked: bool) -> None:
    """Write the identity of the folder's node. With checksums, no other file is believed without: an older
    backup has none.
    """
    disk, path = RealDisk(), str(target / META_PROPERTIES)
    if is_checked:
        write_checked(disk, path, identity, copy=True)
    else:
        remove_checked(disk, path)
        disk.write_file(path, identity)
