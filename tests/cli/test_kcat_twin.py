"""`raftlog produce` and `consume` against the real kcat: the same bytes in, the same bytes out."""

from __future__ import annotations

import shutil
import struct

import pytest

from raftlog.testing.cluster import Cluster
from tests.cli.live import CommandLine
from tests.kit.waits import PATIENCE_S, run

KCAT = shutil.which("kcat") or shutil.which("kafkacat")

pytestmark = [
    pytest.mark.clients,
    pytest.mark.slow,
    pytest.mark.skipif(
        KCAT is None,
        reason="NO KCAT ON THIS MACHINE: install it (Debian: kcat), these claims are not being tested",
    ),
]

FAST = ("-X", "fetch.wait.max.ms=10")
INPUT = (
    b'a:first\n\nb:\n:no key\nplain\nk2:x:y\nq:say "hi"\\\t\x01\x7f\n\xc3\xbc:umlaut \xff\r\nlast:without end'
)


def kcat(cluster: Cluster, *arguments: str, stdin: bytes = b"") -> bytes:
    command = [str(KCAT), "-b", cluster.bootstrap_servers, "-m", str(PATIENCE_S), "-q", *FAST, *arguments]
    ran = run(command, stdin=stdin)
    ran.check_returncode()
    return ran.stdout


@pytest.fixture(scope="module")
def records(cluster: Cluster) -> str:
    """A topic of one partition with records of every kind."""
    raftlog = CommandLine(cluster.bootstrap_servers)
    assert raftlog("topic", "create", "records", "-p", "1").returncode == 0
    headers = ["-H", "n=v", "-H", "bare", "-H", "empty="]
    assert raftlog("produce", "-t", "records", "-K", ":", *headers, stdin=INPUT).returncode == 0
    assert raftlog("produce", "-t", "records", "-K", ":", "-Z", stdin=b"gone:\n:\n").returncode == 0
    return "records"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-K", ":"],
        ["-K", "\\x09", "-D", ";\\n"],
        ["-J"],
        ["-J", "-D", "\\n\\n"],
        ["-Z"],
        ["-Z", "-K", "|"],
        ["-f", "%t %p %o %k %s %h %T\\n"],
        ["-f", "%K,%S,%R;%% \\x41\\n"],
        ["-D", ""],
        ["-c", "3"],
        ["-o", "beginning", "-c", "1"],
        ["-o", "2", "-f", "%o\\n"],
        ["-o", "-2", "-f", "%o\\n"],
        ["-o", "end"],
        ["-p", "0", "-o", "4", "-c", "2", "-f", "%o %s\\n"],
        ["-o", "s@1", "-o", "e@9999999999999", "-f", "%o\\n"],
        ["-o", "e@1"],
        ["-u", "-q", "-f", "%s"],
        ["-X", "client.id=somebody", "-f", "%o "],
    ],
)
def test_what_is_printed_is_what_kcat_prints(
    cluster: Cluster, raftlog: CommandLine, records: str, arguments: list[str]
) -> None:
    """Byte for byte, standard output as a whole."""
    theirs = kcat(cluster, "-C", "-t", records, "-e", *arguments)
    ours = raftlog("consume", *FAST, "-t", records, "-e", *arguments)
    assert (ours.returncode, ours.out, ours.err) == (0, theirs, b"")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-K", ":"],
        ["-K", ":", "-Z"],
        ["-K", ":", "-k", "fixed"],
        ["-k", "fixed", "-H", "a=1", "-H", "b"],
        ["-D", ":"],
        ["-D", "\\n\\n"],
        ["-c", "2"],
        ["-T"],
        ["-z", "gzip"],
        ["-z", "lz4", "-X", "linger.ms=1"],
    ],
)
def test_what_is_sent_is_what_kcat_sends(
    cluster: Cluster, raftlog: CommandLine, name: str, arguments: list[str]
) -> None:
    """Both send the same input, and kcat reads the same records twice."""
    ours, theirs = f"ours-{name}", f"theirs-{name}"
    raftlog("topic", "create", ours, theirs, "-p", "1")
    sent = raftlog("produce", "-t", ours, *arguments, stdin=INPUT)
    assert (sent.returncode, sent.err) == (0, b"")
    assert sent.out == kcat(cluster, "-P", "-t", theirs, *arguments, stdin=INPUT)
    show = ["-e", "-f", "%o %K %k %S %s %h\\n"]
    assert kcat(cluster, "-C", "-t", ours, *show) == kcat(cluster, "-C", "-t", theirs, *show) != b""


def test_binary_is_unpacked_as_kcat_does(cluster: Cluster, raftlog: CommandLine, name: str, tmp_path) -> None:
    """-s, and files that are one record each."""
    raftlog("topic", "create", name, "-p", "1")
    for number in (1, -1, 2**31 - 1):
        (tmp_path / str(number)).write_bytes(struct.pack(">iQh", number, 2**63, number % 100) + b"text")
    (tmp_path / "empty").touch()
    files = [str(path) for path in sorted(tmp_path.iterdir())]
    assert raftlog("produce", "-t", name, *files).returncode == 0
    for pack in ("value=iQhs", "value=>iQh", "value=i"):
        arguments = ["-t", name, "-e", "-s", pack]
        assert raftlog("consume", *FAST, *arguments).out == kcat(cluster, "-C", *arguments) != b""


def test_a_file_of_lines_is_sent_as_kcat_sends_it(
    cluster: Cluster, raftlog: CommandLine, name: str, tmp_path
) -> None:
    """-l"""
    raftlog("topic", "create", name, "-p", "1")
    (tmp_path / "lines").write_bytes(INPUT)
    for _ in range(2):
        assert raftlog("produce", "-t", name, "-l", str(tmp_path / "lines")).returncode == 0
    assert kcat(cluster, "-C", "-t", name, "-e") == 2 * b"".join(
        line + b"\n" for line in INPUT.split(b"\n") if line
    )


def test_a_group_goes_on_where_kcats_stopped_and_kcat_where_ours_did(
    cluster: Cluster, raftlog: CommandLine, records: str
) -> None:
    """-G: the committed offsets are the offsets of the printed records."""
    everything = kcat(cluster, "-C", "-t", records, "-e", "-f", "%o\\n").split()
    group = ["-G", "twin", "-X", "auto.offset.reset=earliest", "-f", "%o\\n"]
    found = raftlog("consume", *FAST, *group, "-c", "3", records).out.split()
    found += kcat(cluster, *group, "-c", "2", records).split()
    found += raftlog("consume", *FAST, *group, "-e", records).out.split()
    assert found == everything


def test_its_config_file_is_kcats(cluster: Cluster, raftlog: CommandLine, records: str, tmp_path) -> None:
    """-F: the same file for both."""
    (tmp_path / "kcat.conf").write_text("# a comment\nclient.id=somebody\n\nfetch.wait.max.ms=5\n")
    arguments = ["-t", records, "-e", "-F", str(tmp_path / "kcat.conf")]
    assert raftlog("consume", *FAST, *arguments).out == kcat(cluster, "-C", *arguments)
    (tmp_path / "kcat.conf").write_text("no.such.setting=1\n")
    refused = raftlog("consume", *FAST, *arguments)
    assert refused.returncode == 2 and "no.such.setting" in refused.stderr
