"""Claims about the console's screens of share groups."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from raftlog.client.share_fetching import ACCEPT
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


def test_queue_releases_and_archives_records_by_hand(
    page: Any, own_cluster: AdminCluster, topic: str
) -> None:
    """The dialog says what will be, and the page what was done; a record's own page names its offset."""
    with working(own_cluster, topic, topic, client_id="holder") as worker:
        worker.take(4)
        page.goto(f"{own_cluster.admin_url(1)}/#/queues/{topic}")
        dialog = page.get_by_role("dialog")
        page.get_by_role("button", name=f"Release records of {topic}, partition 0").click()
        dialog.get_by_text(f"All that is in flight of {topic}, partition 0. Members that hold").wait_for()
        dialog.locator("[name=first]").fill("2")
        dialog.locator("[name=last]").fill("1")
        assert dialog.get_by_role("button", name="Release", exact=True).is_disabled()
        dialog.locator("[name=last]").fill("3")
        dialog.get_by_text(f"2 offsets from 2 on of {topic}, partition 0.").wait_for()
        dialog.get_by_role("button", name="Release", exact=True).click()
        page.get_by_text(f"{topic}, partition 0: 2 released.").wait_for()
        page.get_by_text("2 held").wait_for()
        page.get_by_role("table", name="In flight").get_by_role("link", name="0", exact=True).click()
        page.get_by_text("holder (127.0.0.1) holds offset 0").wait_for()
        page.get_by_role("button", name=f"Archive offset 0 of {topic}, partition 0").click()
        dialog.get_by_text("Offset 0 of").wait_for()
        dialog.get_by_role("button", name="Archive", exact=True).click()
        page.get_by_text(f"{topic}, partition 0: 1 archived.").wait_for()
        page.locator(".timeline").get_by_text(
            "an operator took it from holder (127.0.0.1), and it is archived"
        ).wait_for()
        assert not page.get_by_role("button", name=f"Archive offset 0 of {topic}, partition 0").is_visible()
        worker.member.leave()


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
    cells = page.get_by_role("table", name="In flight").get_by_role("row").nth(1).get_by_role("cell")
    until(lambda: cells.nth(2).inner_text() == "5", "the group starts at the end")
    assert cells.nth(2).get_by_role("link").count() == 0, "there is no record"
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("textbox").fill(topic)
    page.get_by_role("dialog").get_by_role("button", name="Delete the group").click()
    page.wait_for_url("**/#/queues")


@pytest.mark.errors_expected
def test_queue_asks_for_a_record_by_its_offset(page: Any, own_cluster: AdminCluster, topic: str) -> None:
    """The form knows the group's topic. A topic that does not exist is reported as missing."""
    page.goto(f"{own_cluster.admin_url(1)}/#/queues/{topic}")
    until(lambda: page.locator("[name=topic]").input_value() == topic, "the form has the topic")
    page.locator("[name=offset]").fill("3")
    page.get_by_role("button", name="Show history of the record").click()
    page.get_by_text("Offset 3 is available, after 0 of 5 deliveries.").wait_for()
    page.go_back()
    page.locator("[name=topic]").fill("not-there")
    page.locator("[name=offset]").fill("3")
    page.get_by_role("button", name="Show history of the record").click()
    page.get_by_text("topic not-there does not exist").first.wait_for()


def test_record_of_a_queue_is_shown_decoded(
    page: Any, own_cluster: AdminCluster, api: Api, topic: str
) -> None:
    """By the decoder of the records screen: a schema of the registry, or what the user chooses."""
    client = SchemaRegistryClient({"url": own_cluster.schema_registry_url(1)})
    schema_id = client.register_schema(f"{topic}-value", Schema('"string"', "AVRO"))
    payload = b"\0" + schema_id.to_bytes(4, "big") + b"\x06Ada"
    write(api, topic, {"type": "BINARY", "data": base64.b64encode(payload).decode()}, partition_id=0)
    page.goto(f"{own_cluster.admin_url(1)}/#/queues/{topic}/{topic}/0/5")
    page.get_by_text("Offset 5 is available").wait_for()
    page.get_by_text(f"Avro by {topic}-value version 1").wait_for()
    page.locator("pre").filter(has_text='"Ada"').wait_for()
    page.get_by_label("Show the value as").select_option("hex")
    page.get_by_text("06 41 64 61").wait_for()


@pytest.mark.errors_expected
def test_record_of_a_queue_that_is_not_written_yet_is_missing(
    page: Any, own_cluster: AdminCluster, topic: str
) -> None:
    """The API has no history of its deliveries either."""
    with page.expect_response(f"**/v1/whoami?group={topic}"):
        page.goto(f"{own_cluster.admin_url(1)}/#/queues/{topic}/{topic}/0/5")
    page.get_by_text(f"partition {topic}-0 has no record 5: it ends at offset 5").wait_for()
    page.get_by_text("There is no record at this offset").wait_for()
    assert page.get_by_label("Path").inner_text() == f"Queues / {topic}"
    assert page.locator(".actions button:visible").count() == 0


def test_marker_of_a_transaction_has_no_buttons(page: Any, own_cluster: AdminCluster, topic: str) -> None:
    """It has an offset and no record. The record before it has both buttons."""
    settings = {"bootstrap.servers": own_cluster.bootstrap_servers, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"committed", partition=0)
    producer.commit_transaction()
    for offset, count in ((5, 2), (6, 0)):
        with page.expect_response(f"**/v1/whoami?group={topic}"):
            page.goto(f"{own_cluster.admin_url(1)}/#/queues/{topic}/{topic}/0/{offset}")
        page.get_by_text(f"Offset {offset} is available").wait_for()
        page.get_by_text("committed" if count else "There is no record at this offset").wait_for()
        assert page.locator(".actions button:visible").count() == count


def test_partition_with_nothing_in_flight_has_no_link_and_disabled_buttons(
    page: Any, own_cluster: AdminCluster, topic: str
) -> None:
    """The buttons are enabled while a member holds records, and disabled once all are accepted."""
    with working(own_cluster, topic, topic, client_id="worker") as worker:
        taken, records = worker.take(5)
        assert len(records) == 5
        page.goto(f"{own_cluster.admin_url(1)}/#/queues/{topic}")
        row = page.get_by_role("table", name="In flight").get_by_role("row").nth(1)
        row.get_by_role("link", name="0", exact=True).wait_for()
        buttons = row.get_by_role("button")
        assert [buttons.nth(each).is_disabled() for each in range(2)] == [False, False]
        for offset, _ in records:
            worker.say(taken, offset, ACCEPT)
        worker.close()
        until(lambda: row.get_by_role("cell").nth(2).inner_text() == "5", "all are done")
        assert row.get_by_role("link", name="5", exact=True).count() == 0
        assert [buttons.nth(each).is_disabled() for each in range(2)] == [True, True]


def test_dead_letter_leads_to_the_record_that_was_given_up(
    page: Any, own_cluster: AdminCluster, api: Api, topic: str
) -> None:
    """By its headers (KIP-1191); headers that only look like them lead nowhere."""
    given_up = {"group": topic, "topic": topic, "partition": "0", "offset": "3"}
    for values in ({**given_up, "offset": "3/../../"}, given_up):
        headers = [
            {"name": f"__dlq.errors.{name}", "value": base64.b64encode(value.encode()).decode()}
            for name, value in values.items()
        ]
        write(api, topic, {"data": "a letter"}, partition_id=0, headers=headers)
    page.goto(f"{own_cluster.admin_url(1)}/#/topics/{topic}/records")
    dialog = page.get_by_role("dialog")
    page.get_by_role("row").filter(has_text="3/../../").click()
    dialog.get_by_text("__dlq.errors.offset").wait_for()
    assert dialog.get_by_role("link").count() == 0
    page.keyboard.press("Escape")
    page.get_by_role("row").filter(has_text="a letter").first.click()
    dialog.get_by_role("link", name=f"{topic}, partition 0, offset 3").click()
    page.get_by_text("Offset 3 is available").wait_for()
    assert dialog.count() == 0
