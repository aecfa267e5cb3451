"""Claims about the proofs that nodes exchange."""

from __future__ import annotations

import pytest

from raftlog.base.handshake import CONNECTOR, LISTENER, PROOF_BYTES, Transcript

SECRET = b"sixteen bytes or more"


def transcript(
    hello: bytes, challenge: bytes = b"", *, secret: bytes = SECRET, protocol: bytes = b"one"
) -> Transcript:
    return Transcript(secret, protocol, hello, challenge)


def test_both_ends_make_the_same_proof_of_what_was_said() -> None:
    """Either end can check what the other one sent."""
    proof = transcript(b"hello", b"challenge").proof(CONNECTOR)
    assert len(proof) == PROOF_BYTES
    assert transcript(b"hello", b"challenge").is_proof(CONNECTOR, proof)


@pytest.mark.parametrize(
    "other",
    [
        transcript(b"hello", b"challenge", secret=b"another secret altogether"),
        transcript(b"hello", b"another challenge"),
        transcript(b"challenge", b"hello"),
        transcript(b"hello"),
        transcript(b"hello", b"challenge", protocol=b"two"),
    ],
    ids=["secret", "nonce", "order", "length", "protocol"],
)
def test_a_proof_holds_for_one_secret_one_exchange_and_one_protocol_only(other: Transcript) -> None:
    """A recorded proof is useless elsewhere."""
    assert not other.is_proof(CONNECTOR, transcript(b"hello", b"challenge").proof(CONNECTOR))


def test_the_proof_of_one_end_is_not_that_of_the_other() -> None:
    """A node that is sent its own words back has not been answered."""
    said = transcript(b"hello", b"challenge")
    assert not said.is_proof(LISTENER, said.proof(CONNECTOR))


def test_proofs_and_keys_are_those_of_earlier_releases() -> None:
    """Nodes of two releases prove the secret to each other during a rolling upgrade."""
    said = transcript(b"hello", b"challenge")
    made = said.proof(CONNECTOR), said.proof(LISTENER), *said.keys()
    assert [each.hex()[:16] for each in made] == [
        "bdec96ca55a92fbe",
        "5f395352ade5eff7",
        "4e978681145b5d4f",
        "852f001231abc1ec",
    ]
