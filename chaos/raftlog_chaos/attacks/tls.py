"""Attacks on TLS itself, before any login: no hello, half of it, half a handshake, and far too much."""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from raftlog.base.disk import write_file
from raftlog.testing.certificates import Authority
from raftlog_chaos.attacks.facts import careless
from raftlog_chaos.attacks.floods import HELLO
from raftlog_chaos.attacks.logins import authenticate, choose, is_served
from raftlog_chaos.attacks.registry import attack
from raftlog_chaos.attacks.target import (
    LENGTH,
    Line,
    Target,
    counted,
    expect,
    for_seconds,
    outcomes_of,
    send_each,
)

TOO_LONG: Final = 130
"""Certificates above the client's own; OpenSSL follows a hundred."""
DAYS: Final = 2
HANDSHAKE_RECORD: Final = b"\x16\x03\x01"
RENEGOTIATE_S: Final = 8.0


def hello() -> bytes:
    """Return a real client's first bytes."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = careless().wrap_bio(incoming, outgoing, server_hostname="node")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def long_chain(name: str, length: int) -> bytes:
    """Return a client's certificate below so many others, each of which may sign the next, with its key, as PEM."""
    authorities = [Authority.make(path_length=length - 1)]
    while len(authorities) < length:
        below = length - 1 - len(authorities)
        authorities.append(Authority.make(path_length=below, issuer=authorities[-1]))
    *above, issuer = authorities
    return issuer.issue(name, (), DAYS) + b"".join(each.certificate_pem() for each in reversed(above))


@attack("secure", within_s=40, shape="closed")
def silent_before_tls(target: Target) -> str:
    """Three thousand connections that send no hello leave room for clients, and end after five seconds."""
    with target.rush(3_000, "secure") as lines:
        time.sleep(7)
        return f"{len(lines)} begun; of a hundred of them {counted(outcomes_of(lines[::30], 0.5))}"


@attack("secure", within_s=40, shape="closed")
def handshakes_that_stall(target: Target) -> str:
    """A thousand handshakes that stop within or after their hello end in time, and keep no other client out."""
    whole = hello()
    with target.lines(1_000, "secure") as lines:
        for number, line in enumerate(lines):
            line.send(whole[: 1 + number % len(whole)] if number % 2 else whole, within_s=0.1)
        time.sleep(7)
        for line in lines:
            line.read(0.001)
        return counted(outcomes_of(lines, 1))


@attack("secure", within_s=30, shape="closed")
def garbage_for_a_hello(target: Target) -> str:
    """Anything but a hello ends the connection: other protocols, random records, false lengths."""
    chance, whole = random.Random(6), hello()
    frames = [
        HELLO,
        choose("PLAIN"),
        b"GET / HTTP/1.1\r\n\r\n",
        LENGTH.pack(2**31 - 1),
        b"\x80\x2e\x01\x00\x02",
    ]
    frames += [chance.randbytes(size) for size in (1, 5, 100, 20_000) for _ in range(10)]
    frames += [HANDSHAKE_RECORD + size.to_bytes(2, "big") + bytes(64) for size in (0, 1, 16_384, 65_535)] * 5
    for _ in range(100):
        changed = bytearray(whole)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        frames.append(bytes(changed))
    return send_each(target, frames, port="secure", within_s=7.0)


@attack("secure", within_s=30, shape="closed")
def hellos_without_end(target: Target) -> str:
    """Empty records and a hello of sixteen megabytes, in small pieces, are not kept, and hold up no loop."""
    large = b"\x01\xff\xff\xff\x03\x03"
    piece = HANDSHAKE_RECORD + (16_000).to_bytes(2, "big")
    with target.lines(60, "secure") as lines:
        sent = sum(line.send(HANDSHAKE_RECORD + b"\0\0" * 3, within_s=0.1) for line in lines[:20])
        for _ in range(64):
            for line in lines[20:]:
                sent += line.send(piece + large + bytes(16_000 - len(large)), within_s=0.05)
        return f"{sent // 1024} KiB taken, {counted(outcomes_of(lines, 2))}"


@attack("secure", within_s=30, shape="closed")
def handshakes_one_after_the_other(target: Target) -> str:
    """As many whole handshakes as a stranger can make in five seconds leave time for clients."""
    going_on, made, refused, context = for_seconds(5), 0, 0, careless()
    while going_on():
        try:
            with target.line("secure", 1 + made % 3) as line:
                line.secure(context)
            made += 1
        except OSError:
            refused += 1
    expect(made > 0, "not one handshake came to its end")
    return f"{made} made, {refused} refused"


@attack("secure", within_s=30, shape="closed")
def half_closed_tls(target: Target) -> str:
    """Connections that stop sending in any moment of a handshake, a login or an answer are closed in time."""
    whole, words = hello(), []
    with target.lines(200, "secure") as lines:
        for number, line in enumerate(lines):
            line.send(whole[: number % (len(whole) + 1)])
            line.socket.shutdown(socket.SHUT_WR)
        words += outcomes_of(lines, 7)
    for number in range(30):
        with contextlib.suppress(OSError), target.line("secure") as line:
            line.secure(careless())
            line.send((b"", HELLO, choose("SCRAM-SHA-256"))[number % 3])
            line.socket.shutdown(socket.SHUT_WR)  # without the close that TLS would have
            words.append(line.outcome(7))
    return counted(words)


@attack("secure", within_s=40, shape="closed")
def chains_of_certificates_too_long(target: Target) -> str:
    """A client certificate below a hundred and thirty others, of an unknown authority, is refused and costs little."""
    refused, context = 0, careless()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mallory.pem"
        write_file(path, long_chain("mallory", TOO_LONG))
        context.load_cert_chain(path)
        for _ in range(20):
            with contextlib.suppress(OSError), target.line("secure") as line:
                try:
                    line.secure(context)
                    line.send(HELLO)
                    refused += line.outcome(2.0) != "answered"
                except OSError:
                    refused += 1
    expect(refused == 20, f"{20 - refused} of 20 such certificates were believed")
    return f"{refused} refused"


@attack("secure", within_s=40, shape="closed")
def renegotiations(target: Target) -> str:
    """A client that asks for a second handshake on a connection of TLS 1.2 gets none. Needs the program openssl."""
    program = shutil.which("openssl")
    if program is None:
        return "not tried: there is no program openssl"
    host, port = target.address("secure")
    with subprocess.Popen(  # noqa: S603 - the machine's own openssl
        [program, "s_client", "-connect", f"{host}:{port}", "-tls1_2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as client:
        assert client.stdin is not None
        time.sleep(1)  # it takes letters for commands once it is connected
        client.stdin.write(b"R\n")
        client.stdin.flush()
        time.sleep(1)
        said = client.communicate(b"Q\n", timeout=RENEGOTIATE_S)[0].decode(errors="replace")
    if "RENEGOTIATING" not in said:
        return "not tried: openssl did not ask"
    expect("no renegotiation" in said.lower(), "a second handshake was made")
    return "refused"


@attack("secure", within_s=30, shape="closed")
def guesses_over_tls(target: Target) -> str:
    """A hundred logins with wrong passwords over TLS, and requests without a login, all fail."""
    words = []
    for number in range(100):
        with contextlib.suppress(OSError), target.line("secure", 1 + number % 3) as line:
            line.secure(careless())
            words.append(_speak(line, number))
    expect("served" not in words, "a stranger was served")
    return counted(words)


def _speak(line: Line, number: int) -> str:
    line.ask(choose("SCRAM-SHA-256" if number % 2 else "PLAIN"))
    for message in (b"n,,n=chaos,r=fyko", b"c=biws,r=fyko,p=AAAA") if number % 2 else (b"\0chaos\0x",):
        line.ask(authenticate(message), 2.0)
    return "served" if is_served(line) else "closed"
