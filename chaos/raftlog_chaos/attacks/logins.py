"""Attacks before and during a login, at a listener with SASL and without TLS: floods, lies, guesses, early requests."""

from __future__ import annotations

import base64
import random
import socket
import statistics
import struct
import time
from collections.abc import Sequence
from typing import Any, Final

from raftlog.base.config.security import MECHANISMS
from raftlog.protocol.apis import APIS, ApiKey
from raftlog.protocol.codec import decode_response
from raftlog.security.scram_client import ScramClient
from raftlog_chaos.attacks.floods import HELLO
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    LENGTH,
    LOGIN_PASSWORD,
    LOGIN_USERS,
    Line,
    Target,
    counted,
    expect,
    for_seconds,
    framed,
    head,
    outcomes_of,
    raw,
    request,
    send_each,
)

HANDSHAKE, AUTHENTICATE = int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)
OPEN: Final = frozenset({HANDSHAKE, AUTHENTICATE, int(ApiKey.API_VERSIONS)})
SCRAM: Final = "SCRAM-SHA-256"
MIB: Final = 1 << 20
BEFORE_LOGIN_BYTES: Final = 512 * 1024
"""The largest request before a login (sasl.server.max.receive.size)."""
NONCE: Final = "fyko+d2lbbFgONRv9qkxdawL"


def choose(mechanism: str) -> bytes:
    """Return the frame that chooses a mechanism."""
    return request(HANDSHAKE, 1, "SaslHandshakeRequest", mechanism=mechanism)


def authenticate(message: bytes) -> bytes:
    """Return the frame with a message of the mechanism."""
    return request(AUTHENTICATE, 2, "SaslAuthenticateRequest", auth_bytes=message)


def plain(user: str, password: str, authorization_id: str = "") -> bytes:
    """Return the one message of PLAIN."""
    return authenticate(f"{authorization_id}\0{user}\0{password}".encode())


def answered(line: Line, frame: bytes, within_s: float = 3.0) -> Any:
    """Send a message of a login and return its decoded answer, None without an answer."""
    answer = line.ask(frame, within_s)
    return None if answer is None else decode_response(AUTHENTICATE, 2, memoryview(answer))[1]


def refused(line: Line, frame: bytes) -> str:
    """Send a message that may not be the end of a login. Raises ClaimBroken if it is."""
    answer = answered(line, frame)
    expect(answer is None or answer.error_code != 0, "a login succeeded that proves nothing")
    return "closed" if answer is None else f"error {int(answer.error_code)}"


def is_served(line: Line) -> bool:
    """Whether a connection answers a request that needs a login."""
    return line.ask(raw(int(ApiKey.METADATA), 4, LENGTH.pack(0) + b"\0"), 1.0) is not None


def first_of(line: Line, scram: ScramClient, header: str = "n,,") -> bytes:
    """Begin a login by SCRAM; return the server's first message, empty if there is none."""
    line.ask(choose(SCRAM))
    answer = answered(line, authenticate(scram.first().replace(b"n,,", header.encode(), 1)))
    return b"" if answer is None or answer.error_code else bytes(answer.auth_bytes)


# --- floods


@attack("logins", within_s=40, shape="closed")
def silent_before_login(target: Target) -> str:
    """Three thousand connections that never log in leave room for logins, and end within a minute."""
    with target.rush(3_000, "logins") as lines:
        time.sleep(3)
        return f"{len(lines)} begun; of a hundred of them {counted(outcomes_of(lines[::30], 0.5))}"


@attack("logins", within_s=30, shape="closed")
def mechanisms_without_a_login(target: Target) -> str:
    """Choosing a mechanism again and again, without a login, costs no more than the answers."""
    frame, going_on, sent = choose(SCRAM) * 100, for_seconds(5), 0
    with target.lines(200, "logins") as lines:
        while going_on():
            for line in lines:
                sent += line.send(frame, within_s=0.05) * 100 // len(frame)
                line.read(0.001)
        return f"{sent} handshakes, {counted([each.state for each in lines])}"


@attack("logins", within_s=40, shape="closed")
def large_frames_before_login(target: Target) -> str:
    """A frame beyond 512 KiB closes the connection before its login; those below add up to little on 400 of them."""
    sizes = (BEFORE_LOGIN_BYTES + 1, 16 * MIB, 100 * 1000 * 1000, 2**31 - 1, -1, 0)
    words = send_each(target, [LENGTH.pack(size) + b"\0" * 32 for size in sizes] * 20, port="logins")
    start = LENGTH.pack(BEFORE_LOGIN_BYTES - 4) + head(AUTHENTICATE, 2)
    with target.lines(400, "logins") as lines:
        taken = sum(line.send(start + bytes(400 * 1024), within_s=0.1) for line in lines)
        time.sleep(2)
        return f"{words}; {taken // MIB} MiB of halves taken, {counted(outcomes_of(lines, 0.5))}"


@attack("logins", within_s=40, shape="closed")
def logins_that_stop_halfway(target: Target) -> str:
    """A thousand SCRAM logins that stop between their two messages block no other login."""
    with target.lines(1_000, "logins") as lines:
        for number, line in enumerate(lines):
            user = LOGIN_USERS[0] if number % 2 else f"nobody-{number}"
            line.send(
                choose(SCRAM) + authenticate(ScramClient(SCRAM, user, "", nonce=f"{NONCE}{number}").first())
            )
        words = counted(outcomes_of(lines, 4))
        with target.line("logins") as line:
            scram = ScramClient(SCRAM, LOGIN_USERS[0], LOGIN_PASSWORD, nonce=NONCE)
            answer = answered(line, authenticate(scram.final(first_of(line, scram))))
            expect(answer is not None and answer.error_code == 0, "the right password does not get in")
        return words


@attack("logins", within_s=30, shape="closed")
def logins_a_byte_at_a_time(target: Target) -> str:
    """A login whose bytes arrive one by one is served, or ended in time; it holds up no other client."""
    whole = choose("PLAIN") + plain(LOGIN_USERS[0], "a guess")
    with target.lines(200, "logins") as lines:
        for at in range(len(whole)):
            for line in lines:
                line.send(whole[at : at + 1], within_s=0.01)
        return counted(outcomes_of(lines, 2))


@attack("logins", shape="closed")
def half_closed_logins(target: Target) -> str:
    """Connections that stop sending at any step of a login are answered and closed, or closed."""
    scram = ScramClient(SCRAM, LOGIN_USERS[0], "x", nonce=NONCE)
    steps = (b"", b"\0\0", HELLO, choose(SCRAM), choose(SCRAM) + authenticate(scram.first()), choose("PLAIN"))
    with target.lines(300, "logins") as lines:
        for number, line in enumerate(lines):
            line.send(steps[number % len(steps)])
            line.socket.shutdown(socket.SHUT_WR)
        return counted(outcomes_of(lines, 2))


# --- lies


class Liar(ScramClient):
    """Uses another nonce than the server's, with the right proof for that."""

    said_nonce = ""

    def read(self, server_first: bytes) -> tuple[str, bytes, int]:
        return (self.said_nonce, *super().read(server_first)[1:])


def with_nonce(server_first: bytes, nonce: str) -> bytes:
    """Return a final message that says another nonce."""
    liar = Liar(SCRAM, LOGIN_USERS[0], LOGIN_PASSWORD, nonce=NONCE)
    liar.said_nonce = nonce
    return liar.final(server_first)


@attack("logins", within_s=30, shape="closed")
def lies_in_scram(target: Target) -> str:
    """Another nonce, another header, a proof cut off, twice or too early: none of them is a login (RFC 5802)."""
    words = []
    for lie in range(9):
        with target.line("logins") as line:
            scram = ScramClient(SCRAM, LOGIN_USERS[0], LOGIN_PASSWORD, nonce=NONCE)
            if lie == 0:
                line.ask(choose(SCRAM))
                words.append(
                    refused(
                        line, authenticate(b"c=biws,r=" + NONCE.encode() + b",p=" + bytes(8).hex().encode())
                    )
                )
                continue
            given = first_of(line, scram)
            expect(
                given.startswith(b"r=" + NONCE.encode()),
                "the server's nonce does not begin with the client's",
            )
            proof = scram.final(given)
            lies = (
                with_nonce(given, NONCE),
                with_nonce(given, NONCE + "0" * 48),
                proof.replace(b"c=biws", b"c=" + base64.b64encode(b"y,,")),
                proof[:-8] + b"AAAAAAA=",
                proof.partition(b",p=")[0] + b",p=",
                proof.partition(b",p=")[0],
                scram.first(),
                bytes(60 * 1024),
            )
            words.append(refused(line, authenticate(lies[lie - 1])))
            expect(not is_served(line), "a connection is served after a login that failed")
    return counted(words)


@attack("logins", shape="closed")
def logins_for_somebody_else(target: Target) -> str:
    """An authorization id that is not the user's own, in PLAIN or SCRAM, is no login, whatever the password."""
    user, other = LOGIN_USERS
    words = []
    for frame in (
        plain(user, LOGIN_PASSWORD, other),
        plain(user, LOGIN_PASSWORD, "admin"),
        plain(user, "", user),
    ):
        with target.line("logins") as line:
            line.ask(choose("PLAIN"))
            words.append(refused(line, frame))
    for header in (f"n,a={other},", "p=tls-unique,,", "y,a=,", "n,a=" + "x" * 10_000 + ","):
        with target.line("logins") as line:
            scram = ScramClient(SCRAM, user, LOGIN_PASSWORD, nonce=NONCE)
            given = first_of(line, scram, header)
            if given:
                words.append(refused(line, authenticate(scram.final(given))))
            else:
                words.append("no first message")
    return counted(words)


@attack("logins", shape="closed")
def another_user_on_a_connection(target: Target) -> str:
    """A second login as another user is refused, and ends the connection (KIP-368)."""
    user, other = LOGIN_USERS
    with target.line("logins") as line:
        line.ask(choose("PLAIN"))
        answer = answered(line, plain(user, LOGIN_PASSWORD))
        expect(answer is not None and answer.error_code == 0, "the right password does not get in")
        expect(is_served(line), "a user who got in is not served")
        line.ask(choose("PLAIN"))
        word = refused(line, plain(other, LOGIN_PASSWORD))
        expect(not is_served(line), "a connection is served after it changed its user")
        return word


@attack("logins", shape="closed")
def mechanisms_that_there_are_not(target: Target) -> str:
    """A mechanism that a listener does not offer, whatever its name, is refused and ends the connection."""
    names = (
        "",
        "plain",
        "GSSAPI",
        "EXTERNAL",
        "OAUTHBEARER",
        "SCRAM-SHA-1",
        "SCRAM-SHA-256 ",
        "\0",
        "x" * 32_000,
    )
    refusals = []
    for name in names:
        with target.line("logins") as line:
            answer = line.request(HANDSHAKE, 1, "SaslHandshakeRequest", mechanism=name)
            expect(answer is None or answer.error_code != 0, f"{name[:20]!r} was taken for a mechanism")
            if answer is not None:
                expect(set(answer.mechanisms) <= set(MECHANISMS), "mechanisms were told that there are not")
            refusals.append("closed" if answer is None else f"error {int(answer.error_code)}")
            expect(not is_served(line), "a connection is served without a login")
    return counted(refusals)


@attack("logins", within_s=30, shape="closed")
def requests_before_login(target: Target) -> str:
    """Every other API, in every version, ends the connection before its login; Produce does so with its records."""
    frames = [
        framed(head(key, version) + bytes(64))
        for key in APIS
        if key not in OPEN
        for version in range(APIS[key].min_version, APIS[key].max_version + 1)
    ]
    frames += [choose(SCRAM) + frame for frame in frames[::7]]
    frames += [framed(head(int(ApiKey.PRODUCE), 9) + bytes(400 * 1024))] * 20
    return send_each(target, frames, port="logins")


@attack("logins", within_s=30, shape="closed")
def garbage_in_logins(target: Target) -> str:
    """Random bytes in place of a mechanism's message are no login, and close only their connection."""
    chance, frames = random.Random(5), []
    for size in (0, 1, 2, 100, 10_000, 60_000):
        for mechanism in MECHANISMS:
            frames += [choose(mechanism) + authenticate(chance.randbytes(size)) for _ in range(4)]
            frames += [choose(mechanism) + authenticate(b"n,,n=" + b"=2C" * (size // 3) + b",r=x")]
    frames += [choose(SCRAM) * 3, authenticate(b"x"), choose("PLAIN") + struct.pack(">i", -5)]
    return send_each(target, frames, port="logins", within_s=2.0)


# --- guesses


@attack("logins", within_s=30, shape="closed")
def wrong_passwords_at_a_rate(target: Target) -> str:
    """Guesses on eighty connections for five seconds never succeed, get equal answers, and slow no client down."""
    going_on = for_seconds(5)
    answers: list[str] = []
    while going_on():
        answers += _guess(target, len(answers))
    expect(bool(answers), "no guess was answered")
    expect(len(set(answers)) == 1, f"guesses are answered differently: {sorted(set(answers))}")
    return f"{len(answers)} guesses, {answers[0]}"


def _guess(target: Target, number: int) -> Sequence[str]:
    """Guess on as many connections at once, for existing users and others; return the answer to each."""
    said = []
    with target.lines(80, "logins") as lines:
        for at, line in enumerate(lines):
            user = LOGIN_USERS[at % 2] if at % 4 else f"nobody-{at}"
            line.send(choose("PLAIN") + plain(user, f"guess {number + at}"))
        for line in lines:
            line.receive(1.0)
            frame = line.receive(2.0)
            if frame is not None:
                answer = decode_response(AUTHENTICATE, 2, memoryview(frame))[1]
                expect(answer.error_code != 0, "a guess got in")
                said.append(f"error {int(answer.error_code)}: {answer.error_message}")
    return said


def _first_s(target: Target, user: str) -> float:
    """Return how long the first answer to a user takes, seconds."""
    with target.line("logins") as line:
        line.ask(choose(SCRAM))
        frame = authenticate(ScramClient(SCRAM, user, "", nonce=NONCE).first())
        began = time.perf_counter()
        expect(line.ask(frame) is not None, "a login was not answered")
        return time.perf_counter() - began


@attack("logins", within_s=40, shape="closed")
def users_that_are_not_there(target: Target) -> str:
    """SCRAM's first answer takes as long for a made-up user as for an existing user."""
    took: dict[bool, list[float]] = {True: [], False: []}
    for number in range(300):
        took[True].append(_first_s(target, LOGIN_USERS[number % len(LOGIN_USERS)]))
        took[False].append(_first_s(target, f"{'xyz'[number % 3]}{number:02d}"[:3]))
    there, absent = (statistics.median(took[each]) for each in (True, False))
    expect(absent < 1.5 * there, f"{there * 1e3:.2f} ms for users, {absent * 1e3:.2f} ms for others")
    return f"{there * 1e3:.2f} ms and {absent * 1e3:.2f} ms"
