"""The messages of PLAIN and OAUTHBEARER."""

from __future__ import annotations

import pytest

from raftlog.base.errors import SaslAuthenticationFailed
from raftlog.security.sasl_messages import parse_oauth, parse_plain


def test_plain_has_user_and_password():
    """The text form hides the password. Source: RFC 4616."""
    login = parse_plain(b"\0alice\0s\xc3\xa9cret")
    assert (login.user, login.password) == ("alice", "sécret")
    assert "cret" not in repr(login)
    assert parse_plain(b"alice\0alice\0s").user == "alice"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"alice\0secret",
        b"\0\0secret",
        b"\0alice\0",
        b"\0alice\0s\0x",
        b"\0\xff\0s",
        b"\0" + b"a" * 2_000 + b"\0s",
    ],
)
def test_other_plain_messages_are_refused(message):
    """Neither name nor password may be empty, and no further field may follow. Source: RFC 4616."""
    with pytest.raises(SaslAuthenticationFailed):
        parse_plain(message)


def test_a_login_cannot_name_another_user():
    """CVE-2017-12610."""
    parse_plain(b"alice\0alice\0secret")
    with pytest.raises(SaslAuthenticationFailed):
        parse_plain(b"bob\0alice\0secret")


def test_a_token_comes_with_extensions():
    """The text form hides the token. Source: RFC 7628, KIP-342."""
    login = parse_oauth(b"n,a=alice,\x01auth=Bearer a.b.c\x01traceId=123\x01\x01")
    assert login == ("a.b.c", "alice", {"traceId": "123"})
    assert "a.b.c" not in repr(login)
    assert parse_oauth(b"n,,\x01auth=bearer x\x01\x01").authorization_id == ""


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01x=y\x01\x01",
        b"\xff",
    ],
)
def test_other_token_messages_are_refused(message):
    """Without a token of type Bearer there is no login. Source: RFC 7628."""
    with pytest.raises(SaslAuthenticationFailed):
        parse_oauth(message)
