"""Claims about `raftlog format --add-scram`: the first users of a new cluster, in kafka-storage's words."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from raftlog.base.disk import RealDisk
from raftlog.cli import exits
from raftlog.cli.exits import Failure
from raftlog.cli.scram_argument import read_scram_argument
from raftlog.metadata.bootstrap import BOOTSTRAP, read_bootstrap
from raftlog.security.scram import credential, from_salted
from tests.cli.live import invoke

Format = Callable[..., tuple[int, str, str]]


@pytest.fixture
def format_(tmp_path: Path) -> Format:
    config = tmp_path / "node.properties"

    def run(
        *arguments: str, roles: str = "broker,controller", voters: str = "1@localhost:9093"
    ) -> tuple[int, str, str]:
        config.write_text(f"node.id=1\nprocess.roles={roles}\ncontroller.quorum.voters={voters}\n"
                          f"log.dirs={tmp_path}/data\nmetadata.log.dir={tmp_path}/metadata\n")  # fmt: skip
        return invoke("format", "--config", str(config), *arguments)

    return run


def test_users_lie_beside_the_metadata_log_without_their_passwords(format_: Format, tmp_path: Path) -> None:
    """The file has what a server keeps of a password; neither it nor the output has the password."""
    (tmp_path / "password").write_text("the builder\n")
    code, out, err = format_(
        "--add-scram", 'SCRAM-SHA-256=[name=alice,password="in, wonderland"]',
        "--add-scram", f"SCRAM-SHA-512=[name=bob,password-file={tmp_path}/password,iterations=8192]",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "has user alice for SCRAM-SHA-256" in out and "formatted: node 1" in out
    alice, bob = read_bootstrap(RealDisk(), f"{tmp_path}/metadata")
    for each, password in ((alice, "in, wonderland"), (bob, "the builder")):
        kept = each.credential
        assert kept is not None
        assert kept == credential(each.mechanism, password, kept.salt, kept.iterations)
        assert password not in out and password not in (tmp_path / "metadata" / BOOTSTRAP).read_text()
    assert (alice.user, bob.user) == ("alice", "bob")


def test_salt_and_salted_password_are_taken_as_kafkas_tool_takes_them() -> None:
    """For operators that derive credentials elsewhere."""
    salt, salted = b64encode(b"some salt").decode(), b64encode(b"salted password").decode()
    found = read_scram_argument(
        f'SCRAM-SHA-256=[name=a,salt="{salt}",saltedpassword="{salted}",iterations=5000]'
    )
    assert found.credential == from_salted("SCRAM-SHA-256", b"salted password", b"some salt", 5000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alice", "expected MECHANISM="),
        ("SCRAM-SHA-256=[name=alice,password=hush", "expected MECHANISM="),
        ("SCRAM-SHA-1=[name=alice,password=hush]", "SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-256=[password=hush]", "name: has 1 to 249 characters"),
        ("SCRAM-SHA-256=[name=alice]", "set one of password"),
        ("SCRAM-SHA-256=[name=alice,password=]", "the password is empty"),
        ("SCRAM-SHA-256=[name=alice,password=hush,name=bob]", "name is set twice"),
        ("SCRAM-SHA-256=[name=alice,pasword=hush]", "unknown field pasword"),
        ("SCRAM-SHA-256=[name=alice,password=hush,iterations=4095]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=alice,password=hush,iterations=999999999]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=alice,password=hush,iterations=many]", "a whole number"),
        ("SCRAM-SHA-256=[name=alice,password=hush,salt=!]", "salt must be base64"),
        ("SCRAM-SHA-256=[name=alice,saltedpassword=aHVzaA==]", "needs a salt"),
        ("SCRAM-SHA-256=[name=alice,password-file=/nowhere]", "/nowhere: No such file"),
    ],
)
def test_a_user_that_cannot_be_is_refused_and_its_password_not_shown(text: str, said: str) -> None:
    """The line says which field to mend."""
    with pytest.raises(Failure) as refused:
        read_scram_argument(text)
    assert said in str(refused.value) and "hush" not in str(refused.value)
    assert refused.value.code == exits.USAGE


def test_a_folder_that_is_formatted_gets_no_users(format_: Format, tmp_path: Path) -> None:
    """A cluster may have begun there, which would never look at them."""
    user = ("--add-scram", "SCRAM-SHA-256=[name=alice,password=hush]")
    assert format_()[0] == 0
    code, _, err = format_(*user)
    assert code == exits.EXISTS and "raftlog user set" in err
    code, out, _ = format_(*user, "--ignore-formatted")
    assert code == 0 and "formatted already" in out
    assert not (tmp_path / "metadata" / BOOTSTRAP).exists()


def test_several_voters_need_their_clusters_id(format_: Format) -> None:
    """Each would invent a cluster id, and refuse the others."""
    user = ("--add-scram", "SCRAM-SHA-256=[name=alice,password=hush]")
    voters = "1@localhost:9093,2@localhost:9094,3@localhost:9095"
    code, _, err = format_(*user, voters=voters)
    assert code == exits.USAGE and "--cluster-id" in err
    assert format_(*user, "--cluster-id", "ours", voters=voters)[0] == 0


def test_a_node_that_does_not_vote_and_a_user_twice_are_refused(format_: Format) -> None:
    """Only voters begin a cluster."""
    user = ("--add-scram", "SCRAM-SHA-256=[name=alice,password=hush]")
    code, _, err = format_(*user, *user)
    assert code == exits.USAGE and "alice is named twice" in err
    code, _, err = format_(*user, roles="broker")
    assert code == exits.USAGE and "process.roles" in err
