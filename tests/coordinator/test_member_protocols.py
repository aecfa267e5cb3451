"""The protocols of a classic group's members, kept as sums."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raftlog.coordinator.classic.member_protocols import MemberProtocols, Protocols
from raftlog.coordinator.group import Member
from raftlog.coordinator.group_memory import member_record_bytes

IDS = st.sampled_from("abc")
PROTOCOLS = st.lists(
    st.tuples(st.sampled_from(["range", "sticky", "own"]), st.binary(max_size=9)),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each[0],
).map(tuple)


def member(member_id: str) -> Member:
    return Member(member_id, None, "client", "/host", 1, 1, b"subscription")


@given(steps=st.lists(st.tuples(IDS, PROTOCOLS | st.none()), max_size=12))
def test_the_sums_are_those_of_all_members(steps: list[tuple[str, Protocols | None]]) -> None:
    """The sums equal what going through all would say, whatever came, went or was replaced: common names and bytes."""
    offers, plain = MemberProtocols(), dict[str, Protocols]()
    for member_id, protocols in steps:
        if protocols is None:
            offers.drop(member_id)
            plain.pop(member_id, None)
        else:
            offers.put(member(member_id), protocols)
            plain[member_id] = protocols
    names = [frozenset(name for name, _ in each) for each in plain.values()]
    assert offers.all() == plain and len(offers) == len(plain)
    assert offers.common() == (frozenset.intersection(*names) if names else None)
    new: Protocols = (("range", b"x"),)
    others = sum(member_record_bytes(member(each), its) for each, its in plain.items() if each != "a")
    assert offers.size_with(member("a"), new) == others + member_record_bytes(member("a"), new)


def test_of_members_taken_over_only_the_chosen_protocol_is_known() -> None:
    """Its whole offer is known again once it has joined here."""
    offers = MemberProtocols()
    offers.put_recorded(member("a"), "range")
    assert offers.of("a") == (("range", b"subscription"),)
    assert offers.joined_with("a") is None
    offers.put(member("a"), (("own", b""),))
    assert offers.joined_with("a") == (("own", b""),)
    offers.keep({"b"})
    assert not offers.all() and offers.common() is None
