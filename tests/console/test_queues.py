"""Claims about the console's screens of share groups."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.console.conftest import queue_of, write
from tests.kit.share_worker import working
from tests.kit.waits import until

TIMES = "\N{MULTIPLICATION SIGN}"


@pytest.fixture
def topic(api: Api) -> str:
    """A topic of one partition with five records, of which a share group of the same name has none yet."""
    name = f"jobs-{uuid.uuid4().hex[:6]}"
    assert api.ask("POST", "/topics", {"topic_name": name, "partitions_count": 1}).status == 201
    node = Api(f"http://{api.host}:{api.port}")
    until(lambda: node.get(f"/v1/topics/{name}/replicas").status == 200, "the topic is known")
    for number in range(5):
        write(api, name, {"data": number}, partition_id=0)
    queue_of(node, name, name)
    return name


def test_queue_shows_what_is_held_and_the_story_of_a_record(
    page: Any, own_cluster: AdminCluster, topic: str
) -> None:
    """Two deliveries of the first records: the first was given back."""
    with working(own_cluster, topic, topic, client_id="first") as first:
        first.take(3)
        first.close()
    with working(own_cluster, topic, topic, client_id="second") as second:
        second.take(2)
        page.goto(f"{own_cluster.admin_url(1)}/#/queues")
        page.get_by_label("Search queues").fill(topic)
        page.get_by_text("1 share group").wait_for()
        page.get_by_role("link", name=topic).click()
        page.get_by_text("● stable · 1 member · lag 5 · 2 held").wait_for()
        row = page.get_by_role("table", name="In flight").get_by_role("row").nth(1)
        row.get_by_text(f"2{TIMES} 2").wait_for()
        assert row.get_by_text(f"1{TIMES} 1").count() == 1
        page.get_by_role("table", name="Members").get_by_text("second").wait_for()
        row.get_by_role("link", name="0", exact=True).click()
        page.get_by_text("second (127.0.0.1) holds offset 0, until").wait_for()
        told = page.locator(".timeline b").all_inner_texts()
        assert told == [
            "delivery 2, to second (127.0.0.1)",
            "first (127.0.0.1) was gone",
            "delivery 1, to first (127.0.0.1)",
        ]
        page.get_by_text("These are all of its deliveries.").wait_for()
        second.close()


def test_queue_without_members_is_moved_and_deleted(page: Any, own_cluster: AdminCluster, topic: str) -> None:
    """As the offsets of a consumer group are: with a preview, and by its typed name."""
    page.goto(f"{own_cluster.admin_url(1)}/#/queues/{topic}")
    page.get_by_text("○ empty · 0 members · lag").wait_for()
    page.get_by_role("button", name="Reset offsets").click()
    shown = page.get_by_role("dialog")
    assert shown.locator("[name=to] option").all_inner_texts() == [
        "the beginning",
        "the end",
        "a time",
        "an offset",
    ]
    shown.locator("[name=topic]").fill(topic)
    shown.locator("[name=to]").select_option("latest")
    shown.get_by_role("button", name="Preview, then reset").click()
    shown.get_by_text("Press again to do it.").wait_for()
    shown.get_by_role("button", name="Preview, then reset").click()
    page.get_by_role("table", name="In flight").get_by_role("link", name="5", exact=True).wait_for()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("textbox").fill(topic)
    page.get_by_role("dialog").get_by_role("button", name="Delete the group").click()
    page.wait_for_url("**/#/queues")


def test_queue_asks_for_a_record_by_its_offset(page: Any, own_cluster: AdminCluster, topic: str) -> None:
    """The form knows the group's topic; a topic that is not there is said to be missing."""
    page.goto(f"{own_cluster.admin_url(1)}/#/queues/{topic}")
    until(lambda: page.locator("[name=topic]").input_value() == topic, "the form has the topic")
    page.locator("[name=offset]").fill("3")
    page.get_by_role("button", name="Show history of the record").click()
    page.get_by_text("Offset 3 is available, after 0 of 5 deliveries.").wait_for()
