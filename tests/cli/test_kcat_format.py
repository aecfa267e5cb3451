"""How records are printed and read, in kcat's notation; without a cluster."""

from __future__ import annotations

import io
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.cli.exits import Failure
from raftlog.cli.kcat.format import Record, envelope, formatter, read_delimiter, read_unpack, unpack
from raftlog.cli.kcat.parse import MAX_MESSAGE_BYTES, Shape, messages, read_header

RECORD = Record(b"t", 3, 7, b"k", b"value", [("a", b"1"), ("b", None), ("c", b"")], 1, 1700000000000, 2)
EMPTY = RECORD._replace(key=None, value=None, headers=(), time_kind=0, timestamp_ms=-1)


@pytest.mark.parametrize(
    ("format", "printed"),
    [
        ("%t %p %o %k %s\\n", b"t 3 7 k value\n"),
        ("%T|%h|%K|%S", b"1700000000000|a=1,b=NULL,c=|1|5"),
        ("%R", b"\x00\x00\x00\x05"),
        ("100%%\\t\\x41\\065\\r", b"100%\tA5\r"),
        ("\\66\\q", b"Bq"),
        ("ü", "ü".encode()),
    ],
)
def test_a_format_says_what_is_printed(format: str, printed: bytes) -> None:
    """kcat -f's letters and escapes."""
    assert formatter(format, nulls=False)(RECORD) == printed


def test_what_is_not_there_is_empty_or_null_and_of_length_minus_one() -> None:
    """-Z names it."""
    assert formatter("[%k|%s|%K|%S|%h]", nulls=False)(EMPTY) == b"[||-1|-1|]"
    assert formatter("[%k|%s]", nulls=True)(EMPTY) == b"[NULL|NULL]"
    assert formatter("%R", nulls=False)(EMPTY) == b"\xff\xff\xff\xff"


@pytest.mark.parametrize(("format", "wrong"), [("%x", "%x"), ("%", "%"), ("ok %q", "%q")])
def test_a_letter_that_there_is_not_is_refused(format: str, wrong: str) -> None:
    """Before anything is read."""
    with pytest.raises(Failure, match=f"^-f: .* {wrong};"):
        formatter(format, nulls=False)


def test_the_envelope_has_kcats_fields_in_kcats_order() -> None:
    """-J, no blanks between."""
    assert envelope(b"\n")(RECORD) == (
        b'{"topic":"t","partition":3,"offset":7,"tstype":"create","ts":1700000000000,"broker":2,'
        b'"headers":["a","1","b",null,"c",""],"key":"k","payload":"value"}\n'
    )
    assert (
        envelope(b"")(EMPTY) == b'{"topic":"t","partition":3,"offset":7,"broker":2,"key":null,"payload":null}'
    )


@given(st.text())
def test_every_text_survives_the_envelope(text: str) -> None:
    """Quotes, backslashes and control characters are escaped."""
    content = text.encode("utf-8", "ignore")
    printed = envelope(b"")(RECORD._replace(value=content, key=content))
    assert json.loads(printed)["payload"].encode("utf-8", "surrogatepass") == content


@pytest.mark.parametrize(
    ("letters", "packed", "printed"),
    [
        ("i", struct.pack(">i", -5), b"-5"),
        ("<q", struct.pack("<q", -(2**40)), b"-1099511627776"),
        ("hHbB", struct.pack(">hHbB", -2, 65535, -1, 255), b"-265535-1255"),
        (">I s", struct.pack(">I", 7) + b"rest", b"7 rest"),
        ("c$", b"x", b"x"),
    ],
)
def test_binary_is_unpacked(letters: str, packed: bytes, printed: bytes) -> None:
    """-s, big-endian by default."""
    assert unpack(letters, packed, "value") == printed
    key_only, value_only = read_unpack([f"value={letters}"])
    assert (key_only, value_only) == (None, letters)


@pytest.mark.parametrize(
    ("letters", "packed", "said"),
    [("i", b"abc", "truncated, expected 4 bytes"), ("b$", b"ab", "1 bytes remaining")],
)
def test_binary_of_another_shape_is_reported(letters: str, packed: bytes, said: str) -> None:
    """Rather than printed as nonsense."""
    with pytest.raises(Failure, match=said):
        unpack(letters, packed, "value")


@pytest.mark.parametrize("given", ["x", "key=", "value=iy", ""])
def test_a_pack_format_with_other_letters_is_refused(given: str) -> None:
    """At once, not at the first record."""
    with pytest.raises(Failure, match="pack-format"):
        read_unpack([given])


def test_delimiters_have_escapes() -> None:
    r"""\n, \t, \r and \xNN, anywhere."""
    assert read_delimiter("\\t\\n\\r") == b"\t\n\r"
    assert read_delimiter("\\x54!\\x45\\x53T") == b"T!EST"
    assert read_delimiter(";Sep;") == b";Sep;"


@given(st.lists(st.binary(max_size=20), max_size=20), st.binary(min_size=1, max_size=3), st.integers(1, 7))
def test_messages_are_what_stands_between_delimiters_however_it_arrives(
    parts: list[bytes], delimiter: bytes, step: int
) -> None:
    """A pipe brings pieces of any size; a delimiter may be cut in two."""
    whole = delimiter.join(parts)
    pieces = io.BytesIO(whole)
    found = list(messages(lambda _size: pieces.read(step), delimiter))
    assert found == [each for each in whole.split(delimiter) if each]


def test_input_without_a_delimiter_does_not_fill_the_memory() -> None:
    """A message can't be longer than the cluster takes."""
    with pytest.raises(Failure, match="message 2 is longer"):
        stream = io.BytesIO(b"fine\n" + b"x" * (2 * MAX_MESSAGE_BYTES))
        list(messages(stream.read, b"\n"))


@pytest.mark.parametrize(
    ("shape", "message", "record"),
    [
        (Shape(), b"a:b", (None, b"a:b")),
        (Shape(key_delimiter=b":"), b"a:b:c", (b"a", b"b:c")),
        (Shape(key_delimiter=b":"), b"none", (None, b"none")),
        (Shape(key_delimiter=b":", key=b"fixed"), b"none", (b"fixed", b"none")),
        (Shape(key_delimiter=b":", key=b"fixed"), b"own:x", (b"own", b"x")),
        (Shape(key_delimiter=b":"), b":", (b"", b"")),
        (Shape(key_delimiter=b":", nulls=True), b":", (None, None)),
        (Shape(key_delimiter=b":", nulls=True, key=b"fixed"), b":x", (b"fixed", b"x")),
    ],
)
def test_keys_are_split_off(shape: Shape, message: bytes, record: tuple[bytes | None, bytes | None]) -> None:
    """-K goes before -k; -Z makes null of what is empty."""
    assert shape.key_and_value(message) == record


def test_a_header_may_lack_a_value_but_not_a_name() -> None:
    """-H"""
    assert read_header("a=b=c") == ("a", b"b=c")
    assert read_header("a=") == ("a", b"")
    assert read_header("a") == ("a", None)
    with pytest.raises(Failure, match="NAME=VALUE"):
        read_header("=x")
