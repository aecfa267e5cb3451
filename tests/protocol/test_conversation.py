"""raftlog.protocol.conversation: responses belong to the requests before them, however their bytes arrive."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.protocol.apis import ApiKey
from raftlog.protocol.codec import encode_response
from raftlog.protocol.conversation import Conversation, ConversationLost
from raftlog.protocol.message_builders import request_builders, response_builders

LIST_GROUPS, VERSION = ApiKey.LIST_GROUPS, 4


def asked(conversation: Conversation) -> None:
    request = request_builders(LIST_GROUPS, VERSION).ListGroupsRequest(states_filter=())
    conversation.request(LIST_GROUPS, VERSION, request, client_id="test")


def response(correlation_id: int, group: str) -> bytes:
    make = response_builders(LIST_GROUPS, VERSION)
    listed = make.ListedGroup(group_id=group, protocol_type="", group_state="")
    return encode_response(LIST_GROUPS, VERSION, correlation_id, make.ListGroupsResponse(groups=(listed,)))


def groups(found: Any) -> list[str]:
    return [each.group_id for each in found.groups]


@given(st.lists(st.integers(1, 40), max_size=30))
def test_responses_come_in_the_order_of_their_requests_however_they_are_cut(sizes: list[int]) -> None:
    """Whole frames, pieces and several frames at once."""
    conversation = Conversation()
    asked(conversation)
    asked(conversation)
    stream, found = response(1, "first") + response(2, "second"), []
    for size in (*sizes, len(stream)):
        found += conversation.receive(stream[:size])
        stream = stream[size:]
    assert [groups(each) for each in found] == [["first"], ["second"]]


@pytest.mark.parametrize(
    "received",
    [
        response(2, "another"),
        pack(">i", 0),
        pack(">i", -1),
        pack(">i", 2000),
        b"HTTP/1.1 400",
        pack(">ii", 5, 1) + b"\xff",
    ],
)
def test_bytes_that_are_no_response_to_the_request_end_the_conversation(received: bytes) -> None:
    """Another correlation id, an impossible length, another protocol, a message that is cut off."""
    conversation = Conversation(max_response_bytes=1000)
    asked(conversation)
    with pytest.raises(ConversationLost):
        list(conversation.receive(received))


def test_a_response_without_a_request_ends_the_conversation() -> None:
    """As after a Produce with acks=0."""
    with pytest.raises(ConversationLost):
        list(Conversation().receive(response(1, "unasked")))


def test_a_response_of_another_protocol_is_returned_as_bytes() -> None:
    """Brokers prove their membership so, before Kafka's requests."""
    conversation = Conversation()
    conversation.expect_frame()
    asked(conversation)
    found = list(conversation.receive(pack(">i", 6) + b"raw..." + response(1, "g")))
    assert found[0] == b"raw..." and groups(found[1]) == ["g"]
