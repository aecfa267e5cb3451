"""Claims about the options of `raftlog format` that say who votes at first, with kafka-storage's meaning (KIP-853)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from raftlog.base.disk import RealDisk
from raftlog.base.types import encode_uuid
from raftlog.cli import exits
from raftlog.metadata.bootstrap import BOOTSTRAP, read_bootstrap
from raftlog.metadata.features import KRAFT_VERSION
from raftlog.metadata.metadata_records import FeatureChanged
from tests.cli.live import invoke

Format = Callable[..., tuple[int, str, str]]
ONE, TWO = encode_uuid(UUID(int=1 << 100)), encode_uuid(UUID(int=1 << 101))
DYNAMIC = (FeatureChanged(KRAFT_VERSION, 1),)
BOTH = "1@localhost:9093,2@two:9093"


@pytest.fixture
def format_(tmp_path: Path) -> Format:
    config = tmp_path / "node.properties"

    def run(
        *arguments: str, roles: str = "broker,controller", voters: str = "1@localhost:9093"
    ) -> tuple[int, str, str]:
        lines = [
            "node.id=1",
            f"process.roles={roles}",
            f"controller.quorum.voters={voters}",
            f"log.dirs={tmp_path}/data",
            f"metadata.log.dir={tmp_path}/metadata",
        ]
        config.write_text("\n".join(lines))
        return invoke("format", "--config", str(config), *arguments)

    return run


def test_a_node_alone_begins_with_voters_that_can_change(format_: Format, tmp_path: Path) -> None:
    """kraft.version 1 is in the first batch of the metadata; formatting again is refused, or passed over."""
    code, _, err = format_("--standalone")
    assert (code, err) == (0, "")
    assert read_bootstrap(RealDisk(), f"{tmp_path}/metadata") == DYNAMIC
    code, _, err = format_("-s")
    assert code == exits.EXISTS and "raftlog quorum" in err
    assert format_("-s", "--ignore-formatted")[0] == 0


def test_the_first_voters_have_their_directories(format_: Format, tmp_path: Path) -> None:
    """The metadata's folder gets this node's directory id from the list, and the others are of no interest here."""
    given = f"1@localhost:9093:{ONE},2@two:9093:{TWO}"
    code, out, err = format_("--initial-controllers", given, voters=BOTH)
    assert (code, err) == (0, "") and "/metadata formatted" in out
    assert f"directory.id={ONE}" in (tmp_path / "metadata" / "meta.properties").read_text()
    assert f"directory.id={ONE}" not in (tmp_path / "data" / "meta.properties").read_text()
    assert read_bootstrap(RealDisk(), f"{tmp_path}/metadata") == DYNAMIC


def test_a_node_that_is_added_later_is_only_formatted(format_: Format, tmp_path: Path) -> None:
    """Its list names the present voters."""
    code, _, err = format_("--no-initial-controllers", voters="2@two:9093")
    assert (code, err) == (0, "")
    assert (
        not (tmp_path / "metadata" / BOOTSTRAP).exists() and (tmp_path / "data" / "meta.properties").exists()
    )


@pytest.mark.parametrize(
    ("arguments", "config", "words"),
    [
        (["-s", "-N"], {}, "only one of"),
        (["-s"], {"voters": BOTH}, "as the only voter"),
        (["-N"], {}, "is added later"),
        (["-s"], {"roles": "broker", "voters": "2@two:9093"}, "cannot vote"),
        (["-I", f"1@localhost:9093:{ONE}"], {"voters": BOTH}, "both must be the same"),
        (["-I", f"1@localhost:9093:{ONE},2@two:9093:{ONE}"], {"voters": BOTH}, "same directory id"),
        (["-I", "1@localhost:9093:short"], {}, "no directory id of 22 characters"),
        (["-I", f"1@localhost:9093:{encode_uuid(UUID(int=99))}"], {}, "is reserved"),
        (["-I", f"localhost:9093:{ONE}"], {}, "ID@HOST:PORT:DIRECTORY_ID"),
        (["-I", ","], {}, "names no voter"),
    ],
)
def test_what_contradicts_is_refused(
    format_: Format, tmp_path: Path, arguments: list[str], config: dict[str, str], words: str
) -> None:
    """Before a file is written, with what to change."""
    code, _, err = format_(*arguments, **config)
    assert code == exits.USAGE and words in err
    assert not (tmp_path / "data").exists() and not (tmp_path / "metadata").exists()


def test_users_and_voters_are_in_the_same_file(format_: Format, tmp_path: Path) -> None:
    """A file without kraft.version is as older releases write it."""
    assert format_("-s", "--add-scram", "SCRAM-SHA-256=[name=ann,password=secret]")[0] == 0
    found = read_bootstrap(RealDisk(), f"{tmp_path}/metadata")
    assert found[:1] == DYNAMIC and len(found) == 2
    assert json.loads((tmp_path / "metadata" / BOOTSTRAP).read_text())["kraft_version"] == 1
