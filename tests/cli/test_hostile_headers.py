"""Names and values of headers that are not UTF-8, sent and printed by the command line byte for byte."""

from __future__ import annotations

from tests.cli.live import CommandLine

NAME = b"\xff\xfe\xc3".decode(errors="surrogateescape")
"""As Python reads an argument of a command."""


def test_a_header_is_sent_and_printed_as_its_bytes(raftlog: CommandLine, name: str) -> None:
    """In a format, in kcat's envelope, and as a worker of a queue. No byte is replaced."""
    raftlog("topic", "create", name, "-p", "1")
    header = f"{NAME}={NAME}"
    sent = raftlog("produce", "-t", name, "-H", header, "-H", NAME, stdin=b"v\n")
    assert (sent.returncode, sent.err) == (0, b"")
    raw = b"\xff\xfe\xc3"
    reset = raftlog("share-group", "reset", name, "-t", name, "--to-earliest", "--execute")
    assert reset.returncode == 0
    for reader in (("-t", name), ("--share", name, "--ack", "release", name)):
        printed = raftlog("consume", *reader, "-e", "-f", "%h|%s")
        assert (printed.returncode, printed.out) == (0, raw + b"=" + raw + b"," + raw + b"=NULL|v")
    envelope = raftlog("consume", "-t", name, "-e", "-J")
    assert b'"headers":["%s","%s","%s",null]' % (raw, raw, raw) in envelope.out


def test_a_log_dump_shows_such_names(raftlog: CommandLine) -> None:
    """As it shows keys and values: with escapes, so that its JSON is UTF-8."""
    from raftlog.cli.log import _records
    from raftlog.records.batch import build_batch, new_record, read_header

    batch = memoryview(build_batch([new_record(None, b"\xff", timestamp=1, headers=((NAME, b"\xff"),))]))
    (row,) = _records(read_header(batch), batch)
    assert (row["value"], row["headers"]) == ("\\xff", [["\\xff\\xfe\\xc3", "\\xff"]])
