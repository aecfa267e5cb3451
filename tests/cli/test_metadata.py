"""raftlog metadata dump: the content of a voter's folder, as of any moment it remembers, and no secret of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

from raftlog.base.disk import RealDisk
from raftlog.base.types import METADATA_FOLDER
from raftlog.cli.app import app
from raftlog.metadata.causes import Cause
from raftlog.metadata.image import EMPTY_IMAGE, Endpoint, MetadataImage
from raftlog.metadata.metadata_records import (
    AclCreated,
    Batch,
    BrokerRegistered,
    ClusterNamed,
    ConfigChanged,
    ControllerElected,
    PartitionCreated,
    ScramCredentialChanged,
    TopicCreated,
    TopicDeleted,
    encode_batch,
)
from raftlog.metadata.record_replay import apply_batch
from raftlog.metadata.snapshot import encode_image
from raftlog.quorum.snapshot import Snapshot, encode_snapshot
from raftlog.quorum.wal import COMMAND_PREFIX, NAME, Entry, encode_file
from raftlog.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from raftlog.security.scram import ScramCredential

SALT, STORED_KEY, SERVER_KEY = b"saltsaltsalt", b"stored-key-of-ann", b"server-key-of-ann"
SECRET = "key-store-pass"
ORDERS, CLICKS = UUID(int=1), UUID(int=2)
ACL = Acl(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:ann", "*", Operation.READ, Permission.ALLOW
)


def at(text: str) -> int:
    """Return a second of 2026-01-01 in wall milliseconds."""
    return 1_767_225_600_000 + int(text) * 1000


BATCHES = [
    Batch(1, 0, (ControllerElected(1, 1),), at("1")),
    Batch(1, 1, (ClusterNamed("the-cluster"),), at("2")),
    Batch(
        1,
        2,
        (BrokerRegistered(1, UUID(int=9), (Endpoint("PLAINTEXT", "one", 9092),), "r1", (UUID(int=8),)),),
        at("3"),
    ),
    Batch(
        1,
        3,
        (TopicCreated("orders", ORDERS), PartitionCreated(ORDERS, 0, (1,), (1,), 1)),
        at("4"),
        (Cause("topics_created"),),
    ),
    Batch(
        1,
        5,
        (
            ConfigChanged("topic", "orders", "retention.ms", "60000"),
            ConfigChanged("broker", "1", "listener.name.tls.ssl.keystore.password", SECRET),
        ),
        at("5"),
    ),
    Batch(
        1,
        7,
        (
            ScramCredentialChanged(
                "ann", "SCRAM-SHA-256", ScramCredential(SALT, 4096, STORED_KEY, SERVER_KEY)
            ),
            AclCreated(ACL),
        ),
        at("6"),
    ),
    Batch(0, 3, (TopicCreated("of-a-lost-leader", UUID(int=3)),), at("7")),
    Batch(1, 9, (TopicDeleted(ORDERS), TopicCreated("clicks", CLICKS)), at("8")),
]


def entries(batches: Iterable[Batch], first: int = 2) -> list[Entry]:
    return [(COMMAND_PREFIX + encode_batch(each), first + number, 1) for number, each in enumerate(batches)]


def write(folder: Path, log: list[Entry], commit_index: int = 99) -> Path:
    (folder / METADATA_FOLDER).mkdir(parents=True, exist_ok=True)
    file = folder / METADATA_FOLDER / NAME
    file.write_bytes(encode_file(1, entries=log, term=1, voted_for=1, commit_index=commit_index))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A voter's folder with all batches, after the entry that a new leader begins with."""
    write(tmp_path, [(b"\x01", 1, 1), *entries(BATCHES)])
    return tmp_path


@pytest.fixture
def shortened(tmp_path: Path) -> Path:
    """The same after a snapshot at offset 5."""
    image = EMPTY_IMAGE
    for batch in BATCHES[:4]:
        after = apply_batch(image, batch)
        assert after is not None
        image = after
    log = entries(BATCHES)
    write(tmp_path, log[2:])
    snapshot = encode_snapshot(Snapshot(log[2], log[3], encode_image(image)))
    (tmp_path / METADATA_FOLDER / f"{log[3][1]:020}.snapshot").write_bytes(snapshot)
    return tmp_path


def run(*arguments: object) -> tuple[int, str, str]:
    """Return exit code, output and complaints; a secret is in neither."""
    result = CliRunner().invoke(app, ["metadata", "dump", *map(str, arguments)])
    for secret in (SALT, STORED_KEY, SERVER_KEY, SECRET.encode()):
        assert secret not in result.stdout_bytes + result.stderr_bytes
    return result.exit_code, result.stdout, result.stderr


def test_dump_prints_all_that_the_cluster_agreed_on(folder):
    """Brokers, topics, configs, users and ACLs, from the journal alone; a batch of a lost leader is ignored."""
    code, out, err = run(folder, "-J")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["cluster"][0]["cluster_id"] == "the-cluster"
    assert found["cluster"][0]["metadata_offset"] == 11
    assert [(each["broker"], each["endpoints"]) for each in found["brokers"]] == [
        (1, ["PLAINTEXT://one:9092"])
    ]
    assert [each["topic"] for each in found["topics"]] == ["clicks"]
    assert found["users"] == [{"user": "ann", "mechanism": "SCRAM-SHA-256", "iterations": 4096}]
    assert found["acls"][0]["operation"] == "READ"
    assert {each["config"]: each["value"] for each in found["configs"]} == {
        "listener.name.tls.ssl.keystore.password": "[hidden]"
    }


def test_every_part_of_the_metadata_is_shown():
    """A new field of the image is a section here, or is listed as a count or an index."""
    shown = {
        *("cluster_id", "offset", "controller_id", "controller_epoch", "next_producer_id", "features"),
        *(
            "voters",
            "decommissions",
            "brokers",
            "topics",
            "configs",
            "quotas",
            "scram",
            "acls",
            "tokens",
            "unregistered",
        ),
    }
    derived = {"topic_names", "topics_offset", "usage", "features_epoch"}
    assert set(MetadataImage.__struct_fields__) == shown | derived


def test_dump_is_a_table_by_kind_or_a_json_line_for_each_thing(folder):
    """The forms that all commands have; the journal's own folder will do, too."""
    _, out, _ = run(folder / METADATA_FOLDER)
    assert out.startswith("cluster:\ncluster id ")
    assert "\n\nbrokers:\n" in out
    _, out, _ = run(folder, "-o", "jsonl")
    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    assert kinds == ["cluster", "brokers", "topics", "configs", "users", "acls"]


@pytest.mark.parametrize(
    ("moment", "topics"),
    [
        ("4", []),
        ("5", ["orders"]),
        ("10", ["orders"]),
        ("11", ["clicks"]),
        ("2026-01-01T00:00:03Z", []),
        ("2026-01-01T00:00:07.5Z", ["orders"]),
        ("2027-01-01", ["clicks"]),
    ],
)
def test_as_of_shows_what_was_then(folder, moment, topics):
    """Batches are whole: an offset in the middle of a batch is before it."""
    code, out, _ = run(folder, "--as-of", moment, "-J")
    assert (code, [each["topic"] for each in json.loads(out)["topics"]]) == (0, topics)


def test_what_a_snapshot_replaced_is_not_known_any_more(shortened):
    """Every moment since the snapshot is known; for an earlier moment the command fails with the reason."""
    assert json.loads(run(shortened, "-J")[1]) == json.loads(run(shortened, "--as-of", 11, "-J")[1])
    _, out, _ = run(shortened, "--as-of", 5, "-J")
    assert [each["topic"] for each in json.loads(out)["topics"]] == ["orders"]
    for moment in ("4", "2026-01-01T00:00:04.5Z"):
        code, _, err = run(shortened, "--as-of", moment)
        assert (code, "only known as a snapshot" in err) == (3, True)


def test_records_are_lines_that_say_when_and_why(folder):
    """The journal's batches in order; what was skipped says so, and secrets are left out here too."""
    _, out, err = run(folder, "--records", "--as-of", 99)
    rows = [json.loads(line) for line in out.splitlines()]
    assert not err
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4, 5, 6, 7, 8, None, 9, 10]
    created = rows[3]
    assert (created["type"], created["name"], created["at"]) == (
        "TopicCreated",
        "orders",
        "2026-01-01T00:00:04.000+00:00",
    )
    assert created["causes"] == ["an unknown user created the topic"]
    assert [row["applied"] for row in rows].count(False) == 1
    assert rows[7]["credential"] == {"iterations": 4096}


def test_entries_that_may_not_be_committed_are_marked(folder):
    """A voter learns of a commit with the next entry, so the last entries are shown with a note."""
    write(folder, [(b"\x01", 1, 1), *entries(BATCHES)], commit_index=8)
    code, _, err = run(folder)
    assert (code, "the last 1 batches" in err) == (0, True)


def test_nothing_is_written(folder):
    """Not even what a voter would mend at its start, such as an end that a crash tore off."""
    file = folder / METADATA_FOLDER / NAME
    torn = file.read_bytes() + b"\x00\x01\x02"
    file.write_bytes(torn)
    assert run(folder)[0] == 0
    assert file.read_bytes() == torn
    assert RealDisk().listdir(str(file.parent)) == [NAME]


def test_damage_is_named(shortened, tmp_path):
    """Exit code 8 with the file, of the journal and of the snapshot alike."""
    (snapshot,) = (shortened / METADATA_FOLDER).glob("*.snapshot")
    whole = snapshot.read_bytes()
    snapshot.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    code, _, err = run(shortened)
    assert (code, str(snapshot) in err, "checksum" in err) == (8, True, True)
    snapshot.unlink()
    code, _, err = run(shortened)
    assert (code, NAME in err, "no snapshot precedes it" in err) == (8, True, True)


def test_a_folder_without_metadata_is_refused(tmp_path):
    """A broker that does not vote keeps none: one line says where to look."""
    code, _, err = run(tmp_path)
    assert (code, len(err.splitlines()), "only voters keep it" in err) == (3, 1, True)
    code, _, err = run(tmp_path, "--as-of", "yesterday")
    assert code != 0
