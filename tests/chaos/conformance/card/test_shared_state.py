"""Claims about what a card leaves alone: that which all clients of a cluster share."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog_chaos.conformance.card.shared_state import changed_by, shared_state

MARK = "0a1b2c3d"
INTERNAL = "internal topics"


def quota(name: str | None) -> dict[str, Any]:
    return {"entries": [{"entity": [{"entity_type": "user", "entity_name": name}], "ops": []}]}


def acl_filter(name: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a filter of ACLs that chooses all that have a resource's name."""
    return {"resource_name_filter": name, "pattern_type_filter": 1, "principal_filter": None} | fields


@pytest.mark.parametrize(
    ("api", "fields", "changed"),
    [
        ("IncrementalAlterConfigs", {"resources": [{"resource_type": 4, "resource_name": "1"}]}, "configs"),
        ("AlterConfigs", {"resources": [{"resource_type": 8, "resource_name": "1"}]}, "configs"),
        ("AlterConfigs", {"resources": [{"resource_type": 2, "resource_name": f"topic-{MARK}"}]}, ""),
        ("AlterClientQuotas", quota(None), "quotas"),
        ("AlterClientQuotas", quota("alice"), "quotas"),
        ("AlterClientQuotas", quota(f"user-{MARK}"), ""),
        ("CreateAcls", {"creations": [{"resource_name": "*"}]}, "rights"),
        ("CreateAcls", {"creations": [{"resource_name": f"topic-{MARK}"}]}, ""),
        ("DeleteAcls", {"filters": [acl_filter()]}, "rights"),
        ("DeleteAcls", {"filters": [acl_filter(f"topic-{MARK}"), acl_filter("abc")]}, "rights"),
        ("DeleteAcls", {"filters": [acl_filter(f"topic-{MARK}", pattern_type_filter=2)]}, "rights"),
        ("DeleteAcls", {"filters": [acl_filter(principal_filter="User:alice")]}, "rights"),
        ("DeleteAcls", {"filters": [acl_filter(f"topic-{MARK}")]}, ""),
        ("DeleteAcls", {"filters": [acl_filter(principal_filter=f"User:alice-{MARK}")]}, ""),
        ("DeleteAcls", {"filters": []}, ""),
        ("AlterUserScramCredentials", {"deletions": [{"name": "alice"}]}, "other users"),
        ("UpdateFeatures", {}, "features"),
        ("ElectLeaders", {"topic_partitions": None}, "leaders"),
        ("ElectLeaders", {"topic_partitions": []}, ""),
        ("Produce", {"topic_data": [{"name": "__consumer_offsets"}]}, INTERNAL),
        ("Produce", {"topic_data": [{"name": "topic", "partition_data": [{"records": b"__x"}]}]}, ""),
        ("DeleteTopics", {"topic_names": ["__transaction_state"]}, INTERNAL),
        ("Fetch", {"topics": [{"topic": "__consumer_offsets"}]}, ""),
    ],
)
def test_requests_that_change_what_all_clients_share_are_known(api: str, fields: Any, changed: str) -> None:
    """Names with the session's mark belong to the history; reading changes no state."""
    found = shared_state(api, fields, mark=MARK)
    assert found.startswith(changed) and bool(found) == bool(changed)


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        ("DeleteTopics", {"topics": [{"name": "orders", "topic_id": None}]}),
        ("Produce", {"topic_data": [{"name": "orders"}]}),
        ("IncrementalAlterConfigs", {"resources": [{"resource_type": 2, "resource_name": "orders"}]}),
        ("ElectLeaders", {"topic_partitions": [{"topic": "orders", "partitions": [0]}]}),
        ("AddPartitionsToTxn", {"topics": [{"name": "orders", "partitions": [0]}]}),
    ],
)
def test_a_topic_that_the_cluster_had_before_is_left_alone(api: str, fields: Any) -> None:
    """Some histories name a topic without the mark, as for the longest name, and a cluster may have it."""
    assert shared_state(api, fields, mark=MARK, foreign={"orders"}) == "topics of others"
    assert shared_state(api, fields, mark=MARK, foreign={"others"}) == ""
    assert shared_state("Fetch", fields, mark=MARK, foreign={"orders"}) == ""


def test_a_recording_says_what_its_history_will_change() -> None:
    """So a history is left out before it begins; the session looks at what is not recorded."""
    kept = {"asked": "Metadata v9", "fields": {"topics": [{"name": "__consumer_offsets"}]}}
    wide = {"asked": "AlterClientQuotas v1 on other", "fields": quota(None)}
    assert changed_by([kept, {"asked": "wait until it came"}]) == ""
    assert changed_by([kept, wide]) == "quotas of other clients"
