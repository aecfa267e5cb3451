"""Claims about the console in a real browser, with three real nodes behind it."""

from __future__ import annotations

import base64
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.console.conftest import group_of, queue_of, write
from tests.kit.waits import until

READER = "reader-token-0123456789"
OPERATOR = "operator-token-0123456789"
HOSTILE = "<img src=x onerror=alert(1)>\"'&amp;</script><script>alert(2)</script>"
CHANGES = re.compile(
    r"create|produce|delete|trim|add partitions|reset|drain|decommission|keep|change|abort|inject|(?<!down)load|"
    r"set a|add an|remove|send again",
    re.I,
)


def test_every_screen_opens_without_an_error(
    page: Any, own_cluster: AdminCluster, api: Api, topic: str
) -> None:
    """The log of the page stays empty, see the fixture; each screen shows what it is about."""
    write(api, topic, {"data": {"id": 1}}, partition_id=0)
    group_of(own_cluster, topic, "billing")
    queue_of(Api(own_cluster.admin_url(1)), topic, "mailing")
    for path, shown in {
        "": "3 brokers",
        "topics": topic,
        f"topics/{topic}": "leader",
        f"topics/{topic}/records": '{"id":1}',
        f"topics/{topic}/configs": "retention.ms",
        "groups": "billing",
        "groups/billing": "Lag by partition",
        "queues": "mailing",
        "queues/mailing": "The group has no members",
        f"queues/mailing/{topic}/0/0": "Offset 0 is available",
        "transactions": "No hanging transactions.",
        f"topics/{topic}/groups": "billing",
        "brokers": "in service",
        "brokers/2": "● online",
        "brokers/2/configs": "log.dirs",
        "brokers/2/loggers": "A level holds until the process ends.",
        "access": "No SCRAM users.",
        "access/acls": "No authorizer is configured",
        "access/quotas": "No quotas.",
        "why": "Broker 3",
        f"why/{topic}/0": "it was created on",
        "why/1": "broker 1 was unfenced",
        "why/consumer-groups/billing/events": "the group began",
        "chaos": "No fault is active on node 1.",
    }.items():
        page.goto(f"{own_cluster.admin_url(1)}/#/{path}")
        page.locator("main").get_by_text(shown).first.wait_for()
        assert page.locator(".failure:not(:empty)").count() == 0


def test_topic_is_created_written_to_and_read(page: Any, own_cluster: AdminCluster) -> None:
    """By a user with only the console; then it is deleted, by its typed name."""
    name = f"made-{uuid.uuid4().hex[:6]}"
    page.goto(f"{own_cluster.admin_url(1)}/#/topics")
    page.get_by_role("button", name="Create a topic").click()
    page.locator("dialog [name=name]").fill(name)
    page.locator("dialog [name=partitions]").fill("2")
    page.locator("dialog [name=configs]").fill("retention.ms=60000")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("heading", name=name).wait_for()
    page.get_by_role("link", name="Records").click()
    page.get_by_role("button", name="Produce").click()
    page.locator("dialog [name=key]").fill("k1")
    page.locator("dialog [name=value]").fill('{"id": 12345678901234567890, "deep": {"list": [1, 2]}}')
    page.locator("dialog [name=headers]").fill("trace: abc")
    page.get_by_role("dialog").get_by_role("button", name="Produce").click()
    row = page.get_by_role("row").filter(has_text="k1")
    row.click()
    shown = page.get_by_role("dialog")
    shown.get_by_text("trace").wait_for()
    assert "12345678901234567890" in shown.locator(".json summary + .leaf").first.text_content()
    shown.get_by_label("Search in the JSON").fill("LIST[1]: 2")
    shown.get_by_text("1 field").wait_for()
    assert shown.locator(".leaf:visible").inner_text() == "deep.list[1]: 2"
    assert re.search(rf"raftlog consume -b \S+:\d+ -t {name} -p \d -o 0 -c 1", shown.text_content())
    page.keyboard.press("Escape")  # which empties the search
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Configs").click()
    page.get_by_role("row").filter(has_text="retention.ms").filter(has_text="this topic").wait_for()
    page.get_by_role("button", name="Delete", exact=True).click()
    confirm = page.get_by_role("dialog").get_by_role("button", name="Delete the topic")
    assert confirm.is_disabled()
    page.get_by_role("dialog").get_by_role("textbox").fill(name)
    confirm.click()
    page.wait_for_url("**/#/topics")


def test_record_that_is_written_while_one_looks_appears(
    page: Any, own_cluster: AdminCluster, api: Api, topic: str
) -> None:
    """A live view shows it within seconds; the filter hides what does not have its text."""
    page.goto(f"{own_cluster.admin_url(1)}/#/topics/{topic}/records")
    page.get_by_role("button", name="Live").click()
    page.get_by_text("0 records, live").wait_for()
    write(api, topic, {"type": "STRING", "data": "first"}, partition_id=1)
    write(api, topic, {"type": "STRING", "data": "second"}, partition_id=2)
    page.get_by_text("2 records, live").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("SECOND")
    page.get_by_text("1 record of 2 that were read, live").wait_for()
    page.get_by_label("Filter records by key").fill("no such key")
    page.get_by_text("0 records of 2 that were read, live").wait_for()


def test_live_goes_on_from_an_offset_or_a_time(
    page: Any, own_cluster: AdminCluster, api: Api, topic: str
) -> None:
    """Records from the chosen point on are shown first, then new records; the newest is at the top."""
    long_ago, now = time.time() - 7200, time.time()
    for text, at in (("older", long_ago), ("old", long_ago + 1), ("recent", now - 60)):
        write(api, topic, {"type": "STRING", "data": text}, partition_id=1, timestamp=int(at * 1000))
    page.goto(f"{own_cluster.admin_url(1)}/#/topics/{topic}/records")
    page.get_by_text("3 records.").wait_for()
    page.get_by_label("Partition", exact=True).select_option("1")
    page.get_by_label("From", exact=True).select_option("offset")
    page.get_by_label("Offset", exact=True).fill("1")
    page.get_by_label("Offset", exact=True).press("Enter")
    page.get_by_text("2 records.").wait_for()
    page.get_by_role("button", name="Live").click()
    page.get_by_text("2 records, live").wait_for()
    write(api, topic, {"type": "STRING", "data": "new"}, partition_id=1)
    page.get_by_text("3 records, live").wait_for()
    assert page.locator(".rows .row .value").all_inner_texts() == ["new", "recent", "old"]
    page.get_by_role("button", name="Stop").click()
    page.get_by_label("Partition", exact=True).select_option("all")
    page.get_by_label("From", exact=True).select_option("time")
    page.get_by_label("Time", exact=True).fill(time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now - 600)))
    page.get_by_label("Time", exact=True).press("Enter")
    page.get_by_text("2 records.").wait_for()
    page.get_by_role("button", name="Live").click()
    write(api, topic, {"type": "STRING", "data": "newest"}, partition_id=2)
    page.get_by_text("3 records, live").wait_for()
    assert page.locator(".rows .row .value").all_inner_texts() == ["newest", "new", "recent"]


def test_live_from_the_newest_records_misses_none(
    page: Any, own_cluster: AdminCluster, api: Api, topic: str
) -> None:
    """A record that arrives between loading the newest records and pressing the button is shown, too."""
    write(api, topic, {"type": "STRING", "data": "first"}, partition_id=1)
    page.goto(f"{own_cluster.admin_url(1)}/#/topics/{topic}/records")
    page.get_by_text("1 record.").wait_for()
    write(api, topic, {"type": "STRING", "data": "second"}, partition_id=1)
    page.get_by_role("button", name="Live").click()
    page.get_by_text("2 records, live").wait_for()


@pytest.mark.parametrize("where", ["value", "key", "header"])
def test_hostile_record_is_shown_as_text(
    page: Any, own_cluster: AdminCluster, api: Api, topic: str, where: str
) -> None:
    """No part of it becomes an element, neither in the list nor in the whole record."""
    datum = {"type": "STRING", "data": HOSTILE}
    header = {"name": HOSTILE, "value": base64.b64encode(HOSTILE.encode()).decode()}
    write(
        api,
        topic,
        datum if where == "value" else {"data": {HOSTILE: [HOSTILE]}},
        key=datum if where == "key" else None,
        headers=[header] if where == "header" else [],
        partition_id=0,
    )
    page.goto(f"{own_cluster.admin_url(1)}/#/topics/{topic}/records")
    row = page.get_by_role("row").filter(has_text="onerror")
    row.first.click()
    page.get_by_role("dialog").get_by_text("onerror").first.wait_for()
    assert page.locator("main img, dialog img, main script, dialog script").count() == 0


def test_hostile_names_are_shown_as_text(page: Any, own_cluster: AdminCluster, topic: str) -> None:
    """Of a group, and of whatever an address asks for."""
    group_of(own_cluster, topic, HOSTILE)
    page.goto(f"{own_cluster.admin_url(1)}/#/groups")
    page.get_by_role("link", name=HOSTILE).click()
    page.get_by_role("heading", name=HOSTILE).wait_for()
    page.get_by_text("Lag by partition").wait_for()
    assert page.locator("main img, main script").count() == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_story_of_a_group_is_on_its_screen_and_in_why(
    page: Any, own_cluster: AdminCluster, topic: str, protocol: str
) -> None:
    """Members that joined, as text whatever names there are; it opens from the group, and from History."""
    group = f"{HOSTILE} of {protocol}"
    member = Consumer(
        {
            "bootstrap.servers": own_cluster.bootstrap_servers,
            "group.id": group,
            "client.id": HOSTILE,
            "group.protocol": protocol,
        }
    )
    member.subscribe([topic])
    until(lambda: member.poll(0.1) is None and bool(member.assignment()), "it has partitions")
    member.commit(
        offsets=[TopicPartition(topic, 0, 0)], asynchronous=False
    )  # else it has no lag to be asked for
    page.goto(f"{own_cluster.admin_url(1)}/#/why")
    page.locator("#known-groups option").first.wait_for(state="attached")
    offered = page.locator("#known-groups option").evaluate_all("all => all.map((each) => each.value)")
    assert group in offered
    page.get_by_role("combobox", name="Group").fill(group)
    page.get_by_role("button", name="Show history of the group").click()
    page.get_by_role("heading", name=f"Group {group}").wait_for()
    page.get_by_text(f"{HOSTILE} (127.0.0.1) joined").first.wait_for()
    page.get_by_text("generation 1 began with 1 member").first.wait_for()
    page.get_by_text("This is all since the group began.").wait_for()
    page.get_by_role("link", name=group).click()
    page.get_by_role("heading", name="Members").wait_for()
    page.get_by_text(f"{HOSTILE} (127.0.0.1) joined").first.wait_for()
    page.get_by_text(f"{topic}-0, {topic}-1, {topic}-2").wait_for()  # of none of which it has an offset
    assert page.locator("main img, main script").count() == 0
    page.get_by_role("link", name="Full history").click()
    page.get_by_role("heading", name=f"Group {group}").wait_for()
    member.commit(
        offsets=[TopicPartition(topic, 0, 0)], asynchronous=False
    )  # the list's screen asks for its lag
    member.close()


@pytest.fixture
def long_named(own_cluster: AdminCluster, topic: str) -> Iterator[str]:
    """A group with a long name and a member with a long name, without committed offsets."""
    group = f"g-{uuid.uuid4().hex[:6]}-{'g' * 200}"
    consumer = Consumer(
        {
            "bootstrap.servers": own_cluster.bootstrap_servers,
            "group.id": group,
            "client.id": "c" * 200,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])

    def assigned() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    until(assigned, "it is a member")
    yield group
    consumer.close()


def test_group_that_has_committed_nothing_is_listed_without_an_error(
    page: Any, own_cluster: AdminCluster, long_named: str
) -> None:
    """The log of the page stays empty, see the fixture: the page requests only existing resources."""
    page.goto(f"{own_cluster.admin_url(1)}/#/groups")
    page.get_by_role("link", name=long_named).wait_for()
    with page.expect_response(lambda answer: "/v1/consumer-groups" in answer.url):
        pass


def test_long_names_of_clients_do_not_widen_the_page(
    page: Any, own_cluster: AdminCluster, long_named: str
) -> None:
    """Group, client and member, on a phone: in the list, in the group's screen and in its story."""
    page.set_viewport_size({"width": 360, "height": 800})
    for path in ("groups", f"groups/{long_named}", f"why/consumer-groups/{long_named}/events"):
        page.goto(f"{own_cluster.admin_url(1)}/#/{path}")
        page.locator("main").get_by_text("cccc" if long_named in path else long_named).first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path


@pytest.mark.errors_expected
def test_address_with_a_hostile_name_is_only_text(page: Any, own_cluster: AdminCluster) -> None:
    """Of a topic and a partition that are not there, and of no screen at all."""
    for path in ("topics/%3Cimg%20src%3Dx%3E", "why/%3Cimg%20src%3Dx%3E/0", "%3Cimg%20src%3Dx%3E", "why/%"):
        page.goto(f"{own_cluster.admin_url(1)}/#/{path}")
        page.locator("main h1").wait_for()
        page.wait_for_timeout(300)
        assert page.locator("main img").count() == 0


def test_reset_is_previewed_and_done(page: Any, own_cluster: AdminCluster, api: Api, topic: str) -> None:
    """The first press shows the offsets, the second sets them."""
    for number in range(5):
        write(api, topic, {"data": number}, partition_id=0)
    group = f"late-{uuid.uuid4().hex[:6]}"
    group_of(own_cluster, topic, group)
    page.goto(f"{own_cluster.admin_url(1)}/#/groups/{group}")
    page.get_by_role("button", name="Reset offsets").click()
    page.locator("dialog [name=topic]").fill(topic)
    page.locator("dialog [name=to]").select_option("latest")
    act = page.get_by_role("button", name="Preview, then reset")
    act.click()
    page.get_by_text("Press again to do it.").wait_for()
    assert api.get(f"/consumer-groups/{group}/lag-summary").body["total_lag"] == 5
    act.click()
    page.get_by_text("are reset").wait_for()
    assert api.get(f"/consumer-groups/{group}/lag-summary").body["total_lag"] == 0


def test_keys_search_move_and_explain(page: Any, own_cluster: AdminCluster, topic: str) -> None:
    """Without a mouse from the overview to a topic's partitions."""
    page.goto(own_cluster.admin_url(1))
    page.get_by_role("heading", name="Overview").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("search on this screen").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    page.get_by_role("row").filter(has_text=topic).wait_for()
    page.keyboard.press("/")
    page.keyboard.type(topic)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=topic).wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_choice_of_the_system(page: Any, own_cluster: AdminCluster, scheme: str) -> None:
    """The page itself has no switch for them."""
    page.emulate_media(color_scheme=scheme)
    page.goto(own_cluster.admin_url(1))
    page.locator("main h1").wait_for()
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) > 380) == (scheme == "light")


def test_fault_is_injected_watched_and_healed(page: Any, own_cluster: AdminCluster) -> None:
    """On this node and on another, under the load of the page itself: its records take longer."""
    page.goto(f"{own_cluster.admin_url(1)}/#/chaos")
    page.get_by_role("button", name="Start load").click()
    page.get_by_text(re.compile(r"^[1-9]\d* records? acknowledged")).wait_for()
    for node in (1, 2):
        page.get_by_role("combobox", name="Node").select_option(str(node))
        page.get_by_text(f"No fault is active on node {node}.").wait_for()
        page.get_by_role("button", name="Inject fault").click()
        page.get_by_text("slow-disk seconds 0.5").wait_for()
        page.get_by_text(re.compile(r"The longest gap that a record waited: (\d{3} ms|\d\.\d s)")).wait_for()
        page.get_by_role("button", name="Heal").click()
        page.get_by_text(f"No fault is active on node {node}.").wait_for()
    page.get_by_role("button", name="Stop load").click()
    statuses: list[int] = []
    page.on("response", lambda response: statuses.append(response.status))
    page.reload()
    page.get_by_role("button", name="Start load").click()
    page.get_by_text(re.compile(r"^[1-9]\d* records? acknowledged")).wait_for()
    assert 409 not in statuses, "the topic of the load is there already"


def test_load_that_is_stopped_before_its_topic_is_found_ends_silently(
    page: Any, own_cluster: AdminCluster
) -> None:
    """Its request is aborted: that is no error, and does not stop the load that is started next."""
    page.goto(f"{own_cluster.admin_url(1)}/#/chaos")
    page.get_by_role("button", name="Start load").wait_for()
    held: list[Any] = []
    page.route("**/v1/topics", lambda route: held.insert(0, route))
    page.get_by_role("button", name="Start load").click()
    page.get_by_role("button", name="Stop load").click()
    page.unroute("**/v1/topics")
    page.get_by_role("button", name="Start load").click()
    page.get_by_text(re.compile(r"^[1-9]\d* records? acknowledged")).wait_for()
    assert page.get_by_role("button", name="Stop load").is_visible()
    assert not page.locator(".note.bad").count()


def test_node_is_cut_off_and_healed_from_the_page_of_another(page: Any, own_cluster: AdminCluster) -> None:
    """Its admin API still answers other nodes, so the page shows the fault and can end it."""
    page.goto(f"{own_cluster.admin_url(1)}/#/chaos")
    page.get_by_role("combobox", name="Node").select_option("2")
    page.get_by_role("combobox", name="Fault").select_option("cut-off")
    page.get_by_role("button", name="Inject fault").click()
    page.get_by_text("⚡ cut-off").wait_for()
    page.get_by_role("button", name="Heal").click()
    page.get_by_text("No fault is active on node 2.").wait_for()
    own_cluster.wait_ready()


def test_list_of_thousands_holds_few_elements(page: Any, own_cluster: AdminCluster) -> None:
    """Answers as a cluster of 5,000 topics would give them: what cannot be seen is no element."""
    lines = [
        {
            "topic_name": f"topic-{number:05}",
            "is_internal": False,
            "partitions": 1,
            "replication_factor": 3,
            "under_replicated": number % 7 == 0,
            "leaderless": 0,
        }
        for number in range(5000)
    ]
    page.route("**/v1/topics", lambda route: route.fulfill(json={"metadata_offset": 1, "data": lines}))
    page.goto(f"{own_cluster.admin_url(1)}/#/topics")
    page.get_by_text("5,000 topics").wait_for()
    assert page.locator(".list .row").count() < 120
    page.locator(".list").evaluate("(list) => { list.scrollTop = list.scrollHeight; }")
    page.get_by_role("link", name="topic-04999").wait_for()
    page.get_by_role("button", name="State").click()
    page.locator(".list").evaluate("(list) => { list.scrollTop = 0; }")
    page.get_by_text("◐ 1 under-replicated").first.wait_for()
    assert page.locator(".list .row").count() < 120


def test_lines_begin_before_the_page_was_opened_and_move_by_one_stream(
    page: Any, own_cluster: AdminCluster
) -> None:
    """The node has kept samples meanwhile; the page requests them once, and gets later samples from the stream."""
    node = Api(own_cluster.admin_url(1))
    until(lambda: len(node.get("/v1/samples").body["samples"]) >= 3, "samples are kept")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.partition("/v1/")[2]))
    page.goto(own_cluster.admin_url(1))
    points = page.locator(".chart polyline").first
    points.wait_for(state="attached")
    before = points.get_attribute("points")
    assert len(before.split()) >= 3
    until(lambda: page.locator(".chart polyline").first.get_attribute("points") != before, "the line moves")
    assert asked.count("events?samples=true") == 1
    assert not [each for each in asked if each.startswith("samples")]


@pytest.mark.errors_expected
def test_console_works_where_no_further_stream_of_events_may_be_opened(
    page: Any, own_cluster: AdminCluster, api: Api, topic: str
) -> None:
    """It looks every second then."""
    page.route("**/v1/events*", lambda route: route.fulfill(status=429, body='{"message": "64 are open"}'))
    page.goto(f"{own_cluster.admin_url(1)}/#/topics")
    page.get_by_role("link", name=topic).wait_for()
    assert api.ask("POST", "/topics", {"topic_name": f"{topic}-later"}).status == 201
    page.get_by_role("link", name=f"{topic}-later").wait_for()


DRAW = """async () => {
  const { chart } = await import("/console/chart.js");
  const now = Date.now();
  const samples = [60, 30, 0].map((ago) => ({ at_ms: now - ago * 1000, records: 1000 + ago }));
  const drawn = chart("Drawn", [["in", (each) => each.records]], (value) => `${value}/s`);
  drawn.element.id = "drawn";
  document.querySelector("main").prepend(drawn.element);
  drawn.draw(samples, now, 60_000);
}"""
"""Draws values of a minute ago, half a minute ago, and now: 1060, 1030 and 1000."""


def test_values_under_the_pointer_are_shown_with_their_time(page: Any, own_cluster: AdminCluster) -> None:
    """The nearest sample's, as long as the pointer is over the lines; the newest otherwise."""
    page.goto(own_cluster.admin_url(1))
    page.get_by_role("heading", name="Overview").wait_for()
    page.evaluate(DRAW)
    drawn = page.locator("#drawn")
    lines, value, when = drawn.locator("svg"), drawn.locator(".legend b"), drawn.locator(".most")
    assert (value.inner_text(), when.inner_text()) == ("1000/s", "now")
    box = lines.bounding_box()
    for part, shown in (
        (0.01, "1060/s"),
        (0.24, "1060/s"),
        (0.26, "1030/s"),
        (0.7, "1030/s"),
        (0.8, "1000/s"),
    ):
        page.mouse.move(box["x"] + part * box["width"], box["y"] + box["height"] / 2)
        assert value.inner_text() == shown, part
        assert re.search(r"\d\d:\d\d", when.inner_text())
        assert shown in lines.get_attribute("aria-label")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] + 200)
    assert (value.inner_text(), when.inner_text()) == ("1000/s", "now")


@pytest.mark.errors_expected
def test_interrupted_stream_goes_on_after_its_last_event(
    page: Any, own_cluster: AdminCluster, api: Api, topic: str
) -> None:
    """The page says that it lost the node, and what changed meanwhile is shown once the stream is back."""
    last: list[str | None] = []
    answers = [
        f"id: 1.0\nevent: metadata\ndata: {{}}\n\n:\n\nid: {2**40}.0\nevent: metadata\ndata: {{}}\n\n",
        None,
    ]

    def stream(route: Any) -> None:
        last.append(route.request.headers.get("last-event-id"))
        answer = answers.pop(0) if answers else ""
        if answer:
            route.fulfill(status=200, content_type="text/event-stream", body=answer)
        elif answer is None:
            route.abort()
        else:
            route.continue_()

    page.route("**/v1/events*", stream)
    page.goto(f"{own_cluster.admin_url(1)}/#/topics")
    page.get_by_role("link", name=topic).wait_for()
    page.get_by_text("The node has not answered since").wait_for()
    page.locator("#connection:empty").wait_for(state="attached")
    assert last == [None, f"{2**40}.0", f"{2**40}.0"]
    assert api.ask("POST", "/topics", {"topic_name": f"{topic}-later"}).status == 201
    page.get_by_role("link", name=f"{topic}-later").wait_for()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminCluster]:
    """One node that wants a token."""
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"reader grafana {READER}\noperator ada {OPERATOR}\n")
    with AdminCluster(1, settings={"raftlog.admin.tokens.file": str(tokens)}) as running:
        yield running


def sign_in(page: Any, token: str) -> None:
    page.locator("[name=secret]").fill(token)
    page.get_by_role("button", name="Sign in").click()


@pytest.mark.errors_expected
def test_reader_sees_no_button_that_changes_anything(page: Any, guarded: AdminCluster) -> None:
    """An operator does, on the same screens. A wrong token is reported; the tab keeps no token after it closes."""
    url = guarded.admin_url(1)
    node = Api(url)
    operator = {"Authorization": f"Bearer {OPERATOR}"}
    cluster_id = node.ask("GET", "/v3/clusters", headers=operator).body["data"][0]["cluster_id"]
    assert (
        node.ask(
            "POST", f"/v3/clusters/{cluster_id}/topics", {"topic_name": "orders"}, headers=operator
        ).status
        == 201
    )
    page.goto(url)
    sign_in(page, "a-wrong-token-0123456789")
    page.locator(".failure:not(:empty)").wait_for()
    seen: dict[str, set[str]] = {}
    for who, token in (("reader", READER), ("operator", OPERATOR)):
        sign_in(page, token)
        page.get_by_text(f"{'grafana (may only read)' if who == 'reader' else 'ada'}").wait_for()
        seen[who] = set()
        for path in (
            "",
            "topics",
            "topics/orders",
            "topics/orders/records",
            "topics/orders/configs",
            "transactions",
            "brokers/1/configs",
            "brokers/1/loggers",
            "access",
            "access/quotas",
        ):
            page.goto(f"{url}/#/{path}")
            page.locator("main h1").wait_for()
            page.wait_for_timeout(700)
            seen[who] |= set(page.locator("main button").all_inner_texts())
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("heading", name="Sign in").wait_for()
    assert not [each for each in seen["reader"] if CHANGES.search(each)]
    assert {"Create a topic", "Produce", "Delete", "Delete records", "Drain", "Change"} <= seen["operator"]
    assert page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0


@pytest.mark.errors_expected
def test_killed_leader_is_seen_and_a_lost_node_comes_back(page: Any, browser: Any, tmp_path: Path) -> None:
    """The grid changes within a second of the metadata; the page shows that its node is away, and goes on after."""
    with AdminCluster(3) as cluster:
        url = cluster.admin_url(1)
        (found,) = Api(url).get("/v3/clusters").body["data"]
        api = Api(url, f"/v3/clusters/{found['cluster_id']}")
        wanted = {
            "topic_name": "orders",
            "replicas_assignments": [{"partition_id": 0, "broker_ids": [2, 1, 3]}],
        }
        assert api.ask("POST", "/topics", wanted).status == 201
        page.goto(f"{url}/#/topics/orders")
        row = page.get_by_role("row").filter(has_text="leader").first
        row.wait_for()
        leader = [page.locator(".row .replica").nth(each) for each in range(3)]
        assert "leader" in leader[1].inner_text()
        cluster.kill(2)
        until(lambda: api.get("/topics/orders/partitions/0").body["leader_id"] in (1, 3), "another leads")
        known_at = time.monotonic()
        until(lambda: "offline" in leader[1].inner_text(), "the grid shows it")
        assert time.monotonic() - known_at < 1.0
        cluster.nodes[2].start()
        cluster.kill(1)
        page.get_by_text("The node has not answered since").wait_for()
        cluster.nodes[1].start()
        page.locator("#connection:empty").wait_for(state="attached", timeout=60_000)
        until(lambda: "in sync" in leader[0].inner_text(), "it is shown in sync again")
