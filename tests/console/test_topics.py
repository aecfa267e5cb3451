"""Claims about the lists of topics and groups, and about one topic's groups, totals and settings."""

from __future__ import annotations

import re
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.console.conftest import group_of, text_left, write
from tests.kit.waits import until

COUNTED = "Records: end minus first offsets, with markers of transactions and what compaction removed."
NONE = "\N{EN DASH}"


def cells_of(page: Any, row: Any) -> dict[str, str]:
    """Return the texts of a row by the titles of its columns."""
    titles = page.locator(".list .head > *").all_inner_texts()
    return dict(zip(titles, row.locator("[role=gridcell]").all_inner_texts(), strict=True))


def test_list_of_topics_shows_what_they_hold_and_who_reads_them(
    page: Any, own_cluster: AdminCluster, api: Api, topic: str
) -> None:
    """Records, size and rate of the brokers, the cleanup policy and retention in force, and consumer groups."""
    for number in range(3):
        write(api, topic, {"data": number}, partition_id=number)
    group_of(own_cluster, topic, f"reads-{topic}")
    page.goto(f"{own_cluster.admin_url(1)}/#/topics")
    page.get_by_label("Search topics").fill(topic)
    row = page.locator(".list .rows .row")
    row.get_by_text("0/s").wait_for()  # after the second measurement
    found = cells_of(page, row)
    assert (found["Records"], found["Consumer groups"], found["Cleanup"], found["Retention"]) == (
        "3",
        "1",
        "delete",
        "7 d",
    )
    assert re.fullmatch(r"\d+ B", found["Size"])
    assert page.get_by_text(COUNTED).is_visible()
    page.get_by_role("button", name="Records").click()
    page.get_by_role("link", name=topic).wait_for()


def test_narrow_window_shows_all_of_a_topic(
    page: Any, own_cluster: AdminCluster, api: Api, topic: str
) -> None:
    """The list has what finds no column in a second line, a table has a button; heads stand above their cells."""
    write(api, topic, {"data": 1}, partition_id=0)
    page.goto(f"{own_cluster.admin_url(1)}/#/topics")
    row = page.get_by_role("row").filter(has_text=topic)
    row.wait_for()
    head = page.get_by_role("columnheader", name="Topic").get_by_role("button")
    assert abs(text_left(head) - text_left(row.get_by_role("link"))) < 1
    page.set_viewport_size({"width": 400, "height": 900})
    row.get_by_text("Records 1").wait_for()
    assert re.search(
        "Replicas 3.*Rate .*Cleanup delete.*Retention 7 d.*Consumer groups", row.inner_text(), re.DOTALL
    )
    assert row.get_by_text("in sync").is_visible()
    page.goto(f"{own_cluster.admin_url(1)}/#/topics/{topic}")
    partition = page.locator(".rows .row").first
    first, second = partition.locator("> *").first, partition.get_by_text("Epoch")
    assert abs(text_left(first) - text_left(second)) < 1
    page.goto(f"{own_cluster.admin_url(1)}/#/brokers")
    table = page.get_by_role("table", name="Brokers")
    table.wait_for()
    assert not table.get_by_role("columnheader", name="Version").is_visible()
    page.get_by_role("button", name="All 9 columns").click()
    table.get_by_role("columnheader", name="Version").wait_for()
    page.get_by_role("button", name="Fewer columns").click()
    assert not table.get_by_role("columnheader", name="Version").is_visible()


@pytest.mark.errors_expected
def test_missing_topic_has_a_screen_that_says_so(page: Any, own_cluster: AdminCluster) -> None:
    """No tabs, no buttons; a way to the others."""
    page.goto(f"{own_cluster.admin_url(1)}/#/topics/not-there")
    page.get_by_text("There is no topic with this name.").wait_for()
    assert page.get_by_role("link", name="Configs").count() == 0
    page.get_by_role("link", name="Go to all topics").click()
    page.get_by_role("heading", name="Topics").wait_for()


def test_topic_shows_its_groups_and_totals(
    page: Any, own_cluster: AdminCluster, api: Api, topic: str
) -> None:
    """Lag of this topic alone, also on the group's screen; a group without members is deleted by its typed name."""
    group = f"reads-{topic}"
    write(api, topic, {"data": 1}, partition_id=0)
    group_of(own_cluster, topic, group)
    page.goto(f"{own_cluster.admin_url(1)}/#/topics/{topic}/groups")
    page.get_by_text(re.compile(r"1 record · \d+ B · ")).wait_for()
    assert page.get_by_label("Path").inner_text() == "Topics"
    row = page.get_by_role("table", name="Groups").get_by_role("row").filter(has_text=group)
    row.wait_for()
    assert row.get_by_role("cell").all_inner_texts()[2:] == ["0", "0", "1", "1"]
    row.get_by_role("link", name=group).click()
    lags = page.get_by_role("table", name="Lag by topic")
    lags.get_by_role("row").filter(has_text=topic).wait_for()
    page.get_by_role("button", name="Reset offsets").click()
    assert page.locator("dialog [name=topic]").input_value() == topic
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("textbox").fill(group)
    page.get_by_role("dialog").get_by_role("button", name="Delete the group").click()
    page.wait_for_url("**/#/groups")
    page.get_by_role("link", name=group).wait_for(state="detached")


def test_open_transaction_is_named_where_it_holds_back_consumers(
    page: Any, own_cluster: AdminCluster, topic: str
) -> None:
    """On the screens of the topic and of the group, and among the transactions with what it wrote to."""
    group = f"reads-{topic}"
    group_of(own_cluster, topic, group)
    settings = {"bootstrap.servers": own_cluster.bootstrap_servers, "transactional.id": f"report-{topic}"}
    producer = Producer(settings)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush()
    for path in (f"topics/{topic}", f"groups/{group}"):
        page.goto(f"{own_cluster.admin_url(1)}/#/{path}")
        page.get_by_text(f"{topic}-1 is held at offset 0, 1 before the high watermark").wait_for()
        page.get_by_text(re.compile(rf"by transaction report-{topic} since \d\d:\d\d:\d\d")).wait_for()
    page.goto(f"{own_cluster.admin_url(1)}/#/transactions")
    row = page.get_by_role("row").filter(has_text=f"report-{topic}")
    row.get_by_role("link", name=f"{topic}-1").wait_for()
    producer.abort_transaction()
    page.goto(f"{own_cluster.admin_url(1)}/#/topics/{topic}")
    page.get_by_text("1 record ·").or_(page.get_by_text("2 records ·")).wait_for()
    page.get_by_role("heading", name="Held back").wait_for(state="hidden")
    assert page.get_by_text(COUNTED).is_visible()


def test_group_shows_assigned_partitions_without_an_offset(
    page: Any, own_cluster: AdminCluster, topic: str
) -> None:
    """With a dash for each number, between the partitions with an offset."""
    group = f"reads-{topic}"
    settings = {"group.id": group, "client.id": "cook", "enable.auto.commit": False}
    member = Consumer({"bootstrap.servers": own_cluster.bootstrap_servers, **settings})
    member.subscribe([topic])
    until(lambda: member.poll(0.1) is None and bool(member.assignment()), "it has partitions")
    offsets = [TopicPartition(topic, each, 0) for each in (0, 2)]
    member.commit(offsets=offsets, asynchronous=False)
    page.goto(f"{own_cluster.admin_url(1)}/#/groups/{group}")
    rows = page.get_by_role("table", name="Lag", exact=True).locator("tbody tr")
    rows.nth(2).wait_for()
    found = [each.split("\t") for each in rows.all_inner_texts()]
    assert [each[1:5] + each[6:] for each in found] == [
        ["0", "0", "0", "0", "cook"],
        ["1", NONE, NONE, NONE, "cook"],
        ["2", "0", "0", "0", "cook"],
    ]
    member.close()


def test_narrow_list_of_groups_leaves_out_empty_fields(
    page: Any, own_cluster: AdminCluster, topic: str
) -> None:
    """A group without members has no assignor, so there is no label either."""
    group = f"reads-{topic}"
    group_of(own_cluster, topic, group)
    page.set_viewport_size({"width": 400, "height": 900})
    page.goto(f"{own_cluster.admin_url(1)}/#/groups")
    row = page.get_by_role("row").filter(has_text=group)
    row.get_by_text("Coordinator").wait_for()
    assert "Assignor" not in row.inner_text()
