"""Claims about guesses at passwords over HTTP, and about the name by which this machine is called. No node is there."""

from __future__ import annotations

import asyncio
import base64

import msgspec
import pytest

from raftlog.admin.auth import Authenticator, check_browser
from raftlog.admin.errors import ApiError
from raftlog.admin.view import NodeView
from raftlog.admin.wrong_tokens import BURST
from raftlog.base.config import load_config
from raftlog.metadata.image import EMPTY_IMAGE
from raftlog.security.scram import MIN_ITERATIONS, credential

ADDRESS = "10.0.0.1"
RIGHT = "of alice"


def authenticator() -> Authenticator:
    """Return the authenticator of a node with one user and a stopped clock."""
    settings = {"raftlog.admin.listener": "127.0.0.1:0", "connection.failed.authentication.delay.ms": "0"}
    kept = credential("SCRAM-SHA-256", RIGHT, b"salt", MIN_ITERATIONS)
    image = msgspec.structs.replace(EMPTY_IMAGE, scram={("alice", "SCRAM-SHA-256"): kept})
    view = NodeView(load_config(flags=settings), lambda: image, list, lambda: 0.0)
    return Authenticator(view, {}, lambda: 0.0)


async def shown(auth: Authenticator, password: str) -> str:
    """Return what becomes of a request with a password of alice."""
    basic = base64.b64encode(f"alice:{password}".encode()).decode()
    try:
        caller = await auth.caller({"Authorization": f"Basic {basic}"}, ADDRESS, "User:ANONYMOUS")
    except ApiError as error:
        return str(error.status)
    return "nobody" if caller is None else caller.principal


async def test_guesses_that_arrive_at_once_are_counted_on_arrival() -> None:
    """Guesses in parallel cause no more hashing than guesses in sequence."""
    auth = authenticator()
    found = await asyncio.gather(*(shown(auth, f"guess {number}") for number in range(5 * BURST)))
    assert (found.count("nobody"), found.count("429")) == (BURST, 4 * BURST)
    assert auth._passwords.hashed == 2 * BURST, "for each mechanism"
    assert await shown(auth, RIGHT) == "429"


async def test_right_passwords_cost_no_patience() -> None:
    """However many come at once, or after each other."""
    auth = authenticator()
    for _ in range(3):
        found = await asyncio.gather(*(shown(auth, RIGHT) for _ in range(3 * BURST)))
        assert found == ["User:alice"] * 3 * BURST
    assert auth._passwords.hashed == 1
    assert [await shown(auth, RIGHT) for _ in range(3 * BURST)] == ["User:alice"] * 3 * BURST


async def test_a_client_that_leaves_takes_no_answer_from_others_that_show_the_same() -> None:
    """A guess counts though no client waits for its answer."""
    auth = authenticator()
    first, other = (asyncio.create_task(shown(auth, RIGHT)) for _ in range(2))
    guesses = [asyncio.create_task(shown(auth, f"guess {number}")) for number in range(BURST - 1)]
    await asyncio.sleep(0)
    for each in (first, *guesses):
        each.cancel()
    assert await other == "User:alice"
    while auth._looking:
        await asyncio.sleep(0)
    assert [await shown(auth, f"later guess {number}") for number in range(2)] == ["nobody", "429"]


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9644", "127.0.0.1", "127.1.2.3:1", "[::1]", "[::1]:9644"]
)
def test_names_of_this_machine_are_served(host: str) -> None:
    """With or without a port."""
    check_browser("GET", {"Host": host}, open_to_all=True)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[::1]evil.example",
        "[::1].evil.example:80",
        "[::1",
        "[localhost]",
        "localhost:80:80",
        "localhost:80@evil.example",
        "localhost@evil.example",
        "evil.example:80]",
    ],
)
def test_names_that_only_begin_like_this_machines_are_refused(host: str) -> None:
    """A page of another name may have that name resolve to this machine (rebinding)."""
    with pytest.raises(ApiError) as refused:
        check_browser("GET", {"Host": host}, open_to_all=True)
    assert refused.value.status == 403
