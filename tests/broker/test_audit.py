"""raftlog.broker.audit: changes by clients are logged with user, resource and outcome; a flood is a few lines."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from raftlog.base.errors import InvalidTopic
from raftlog.base.log import LIMITED_LINES
from raftlog.broker.api import Change
from raftlog.broker.audit import MOST_NAMED, Audit, Outcomes
from raftlog.metadata.controller_api import PartResult, PartResults
from raftlog.protocol.apis import APIS, ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import ADMIN_API, ADMIN_CLIENT, Operation, Permission, ResourceType
from tests.broker.fakes import TOPIC as KNOWN
from tests.broker.fakes import request
from tests.broker.handlers.test_rights import ALICE, ALTER, CLUSTER, ROWS, GuardedBroker, Row, allow
from tests.broker.rows import row_of
from tests.kit.clock import Clock

CHANGING = {
    name: row
    for name, row in ROWS.items()
    if isinstance(row_of(row.api_key).audit, Change) and row.api_key != ApiKey.DELETE_RECORDS
}
"""The APIs that need a controller."""


def _acl(make: Any, topic: str) -> dict[str, Any]:
    rule = make.AclCreation(
        resource_type=int(ResourceType.TOPIC),
        resource_name=topic,
        resource_pattern_type=3,
        principal="User:bob",
        host="*",
        operation=int(Operation.READ),
        permission_type=int(Permission.ALLOW),
    )
    return {"creations": (rule,)}


CREATE_ACLS = Row(ApiKey.CREATE_ACLS, 3, ((ALTER, CLUSTER),), _acl)


@pytest.mark.parametrize("row", CHANGING.values(), ids=CHANGING.keys())
async def test_failed_change_is_logged_with_principal_and_resource(row: Row) -> None:
    """Without a controller the change fails."""
    broker = GuardedBroker(*(allow(*need) for need in row.needs))
    with capture_logs() as logs:
        await broker.ask(row, KNOWN)
    (line,) = [each for each in logs if each["event"] == "metadata_change"]
    assert (line["principal"], line["client_id"], line["api"]) == (ALICE, "t", APIS[row.api_key].name)
    assert (line["outcome"], line["done"]) == ("failed", [])
    assert line["failed"]


async def test_new_acl_is_logged_as_it_is_written() -> None:
    """With its outcome; the controller gets the principal."""
    broker = GuardedBroker(allow(ALTER, CLUSTER))

    async def submit(asked: Any, **_: Any) -> PartResults:
        broker.asked.append(asked)
        broker.put_in_force(allow(ALTER, CLUSTER), *asked.acls)
        return PartResults((PartResult(),))

    broker.fake.broker.submit = submit  # type: ignore[assignment]
    with capture_logs() as logs:
        await broker.ask(CREATE_ACLS, KNOWN)
    (line,) = [each for each in logs if each["event"] == "metadata_change"]
    assert line["done"] == [f"ALLOW User:bob READ from * on TOPIC LITERAL {KNOWN}"]
    assert [each.by for each in broker.asked] == [ALICE]


async def test_http_api_asks_on_behalf_of_its_caller_and_audits_by_itself() -> None:
    """Only the client id of a node's own HTTP API names the caller; a client's id does not."""
    for principal, by in ((ADMIN_API, "User:root"), (ALICE, ALICE)):
        broker = GuardedBroker(allow(ALTER, CLUSTER))
        broker.fake.broker.authorizer = None
        pipe = broker.connect(principal)
        make = ROWS["create_topics"]
        fields = make.fields(_requests(make), "new")
        message = _requests(make).CreateTopicsRequest(**fields)
        with capture_logs() as logs:
            pipe.send(request(make.api_key, make.version, 1, message, f"{ADMIN_CLIENT} User:root"))
            await pipe.wait()
        assert [each.by for each in broker.asked] == [by]
        assert any(each["event"] == "metadata_change" for each in logs) == (principal == ALICE)


def _requests(row: Row) -> Any:
    from raftlog.protocol.message_builders import request_builders

    return request_builders(row.api_key, row.version)


def test_deletion_logs_the_deleted_acls() -> None:
    """The filter alone would not say."""
    make = response_builders(ApiKey.DELETE_ACLS, 3)
    gone = make.DeleteAclsMatchingAcl(
        error_code=0,
        error_message=None,
        resource_type=2,
        resource_name="orders",
        pattern_type=4,
        principal="User:bob",
        host="*",
        operation=3,
        permission_type=2,
    )
    one = make.DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=(gone,))
    answer = make.DeleteAclsResponse(throttle_time=0, filter_results=(one,))
    change = row_of(ApiKey.DELETE_ACLS).audit
    assert isinstance(change, Change)
    assert list(change.outcomes(None, answer)) == [("DENY User:bob READ from * on TOPIC PREFIXED orders", 0)]


def test_names_and_lines_are_bounded_for_each_client() -> None:
    """A client that causes thousands hides neither the others' lines nor the number of its own."""
    clock = Clock()
    with capture_logs() as logs:
        audit = Audit(clock)
        names = [(f"t-{each}", 0 if each else InvalidTopic.code) for each in range(MOST_NAMED + 6)]
        for _ in range(10 * LIMITED_LINES):
            audit.changed(ApiKey.CREATE_TOPICS, Outcomes(names), validate_only=True, principal="User:greedy")
        audit.changed(ApiKey.CREATE_TOPICS, Outcomes(names[:1]), validate_only=False, principal="User:modest")
        clock.advance(100)
        audit.flush()
    greedy = [each for each in logs if each.get("principal") == "User:greedy"]
    assert len(greedy) == LIMITED_LINES
    assert (greedy[0]["outcome"], greedy[0]["failed"], greedy[0]["validate_only"]) == (
        "partly",
        ["t-0"],
        True,
    )
    assert greedy[0]["done"][-1] == "and 5 more"
    assert [each["outcome"] for each in logs if each.get("principal") == "User:modest"] == ["failed"]
    assert logs[-1]["left_out"] == 9 * LIMITED_LINES
