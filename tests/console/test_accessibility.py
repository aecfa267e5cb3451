"""Claims about the console for blind and visually impaired users: axe-core finds no serious issue on any screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raftlog.base.config.security import STANDARD_AUTHORIZER
from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.console.conftest import group_of, queue_of, write
from tests.kit.dev_cluster import dev_cluster
from tests.kit.waits import until

AXE = Path(__file__).parent / "javascript/node_modules/axe-core/axe.min.js"
GRAVE = ("serious", "critical")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
LOOK = """async (tags) => {
  await Promise.all(document.getAnimations().map((each) => each.finished));
  const found = await axe.run(document, { runOnly: { type: "tag", values: tags }, resultTypes: ["violations"] });
  const node = (each) => each.html.slice(0, 300) + " " + each.failureSummary;
  const told = ({ id, impact, help, nodes }) => ({ id, impact, help, nodes: nodes.slice(0, 3).map(node) });
  return { rules: found.passes.length, found: found.violations.map(told) };
}"""

TOPIC = "orders"
GROUP = "billing"
QUEUE = "work"


@pytest.fixture(scope="module")
def lived_in() -> Iterator[AdminCluster]:
    """A topic with a record in it, a group that reads it, an ACL, and a hurt disk."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with dev_cluster(3, settings=settings, faults=True) as running:
        live_in(running)
        yield running


def live_in(cluster: AdminCluster) -> None:
    """Make what the screens show."""
    url = cluster.admin_url(1)
    (found,) = Api(url).get("/v3/clusters").body["data"]
    node, api = Api(url), Api(url, f"/v3/clusters/{found['cluster_id']}")
    wanted = {"topic_name": TOPIC, "partitions_count": 3, "replication_factor": 3}
    assert api.ask("POST", "/topics", wanted).status == 201
    until(lambda: node.get(f"/v1/topics/{TOPIC}/replicas").status == 200, "the topic is known")
    record = {"data": {"customer": {"name": "Ada"}, "lines": [1, None, True]}}
    write(api, TOPIC, record, partition_id=0, headers=[{"name": "source", "value": "c2hvcA=="}])
    group_of(cluster, TOPIC, GROUP)
    queue_of(node, TOPIC, QUEUE)
    rule = {"resource_type": "TOPIC", "resource_name": TOPIC, "pattern_type": "LITERAL"}
    rule |= {"principal": "User:bob", "host": "*", "operation": "READ", "permission": "DENY"}
    assert api.ask("POST", "/acls", rule).status == 201
    assert node.ask("POST", "/v1/faults", {"fault": "slow-disk", "seconds": 0.01}).status == 200


def press(name: str) -> Callable[[Any], None]:
    """Return what opens a dialog: a button. A narrow window may fold it."""

    def click(page: Any) -> None:
        button, more = (
            page.locator("main").get_by_role("button", name=each, exact=True) for each in (name, "More")
        )
        if more.is_visible() and not button.is_visible():
            more.click()
        button.click()

    return click


def open_record(page: Any) -> None:
    page.get_by_role("row").filter(has_text="Ada").first.click()


def send_again(page: Any) -> None:
    open_record(page)
    page.get_by_role("button", name="Send again").click()


def search(page: Any) -> None:
    """Search the topic, and open what was found."""
    press("Search the topic")(page)
    press("Search")(page)
    page.get_by_text("Done. 1 record").wait_for()
    page.get_by_label("Found records").get_by_role("row").filter(has_text="Ada").click()


def all_columns(page: Any) -> None:
    """Show the columns that a narrow window hides."""
    if (button := page.get_by_role("button", name="All 9 columns")).is_visible():
        button.click()


SCREENS: dict[str, tuple[str, str, Callable[[Any], None] | None]] = {
    "overview": ("", "3 brokers", None),
    "topics": ("topics", TOPIC, None),
    "create a topic": ("topics", TOPIC, press("Create a topic")),
    "topic": (f"topics/{TOPIC}", "leader", None),
    "trim": (f"topics/{TOPIC}", "leader", press("Delete records")),
    "delete": (f"topics/{TOPIC}", "leader", press("Delete")),
    "records": (f"topics/{TOPIC}/records", "Ada", None),
    "all columns of brokers": ("brokers", "in service", all_columns),
    "record": (f"topics/{TOPIC}/records", "Ada", open_record),
    "send a record again": (f"topics/{TOPIC}/records", "Ada", send_again),
    "search of a topic": (f"topics/{TOPIC}/records", "Ada", search),
    "download": (f"topics/{TOPIC}/records", "Ada", press("Download")),
    "produce": (f"topics/{TOPIC}/records", "Ada", press("Produce")),
    "configs": (f"topics/{TOPIC}/configs", "retention.ms", None),
    "groups": ("groups", GROUP, None),
    "group": (f"groups/{GROUP}", "Lag by partition", None),
    "reset": (f"groups/{GROUP}", "Lag by partition", press("Reset offsets")),
    "queues": ("queues", QUEUE, None),
    "queue": (f"queues/{QUEUE}", "In flight", None),
    "reset of a queue": (f"queues/{QUEUE}", "In flight", press("Reset offsets")),
    "archive of a queue": (
        f"queues/{QUEUE}",
        "In flight",
        press(f"Archive records of {TOPIC}, partition 0"),
    ),
    "record of a queue": (f"queues/{QUEUE}/{TOPIC}/0/0", "Headers", None),
    "transactions": ("transactions", "No hanging transactions.", None),
    "groups of a topic": (f"topics/{TOPIC}/groups", GROUP, None),
    "brokers": ("brokers", "in service", None),
    "broker": ("brokers/2", "online", None),
    "configs of a broker": ("brokers/2/configs", "log.dirs", None),
    "log levels": ("brokers/2/loggers", "A level holds", None),
    "users": ("access", "No SCRAM users.", None),
    "set a password": ("access", "No SCRAM users.", press("Set a password")),
    "ACLs": ("access/acls", "User:bob", None),
    "add an ACL": ("access/acls", "User:bob", press("Add an ACL")),
    "quotas": ("access/quotas", "No quotas.", None),
    "set a quota": ("access/quotas", "No quotas.", press("Set a quota")),
    "delete a group": (f"groups/{GROUP}", "Lag by topic", press("Delete")),
    "why": ("why", "Broker 3", None),
    "why of a partition": (f"why/{TOPIC}/0", "it was created on", None),
    "why of a broker": ("why/1", "broker 1 was unfenced", None),
    "why of a group": (f"why/consumer-groups/{GROUP}/events", "the group began", None),
    "chaos": ("chaos", "slow-disk seconds", None),
    "kill a node": ("chaos", "● running", press("Kill node 2")),
    "nowhere": ("nowhere", "There is no such screen", None),
    "keys": ("", "3 brokers", lambda page: page.keyboard.press("?")),
}


def open_each(page: Any, cluster: AdminCluster) -> Iterator[str]:
    """Open the screens and dialogs, and yield the name of each."""
    for name, (path, shown, then) in SCREENS.items():
        page.goto("about:blank")
        page.goto(f"{cluster.admin_url(1)}/#/{path}")
        page.locator("main").get_by_text(shown).first.wait_for()
        if then is not None:
            then(page)
            if then is not all_columns:
                page.get_by_role("dialog").wait_for()
        yield name


WIDEST = """() => {
  const dialog = document.querySelector("dialog[open]");
  const parts = dialog ? [dialog.getBoundingClientRect().right, dialog.scrollWidth] : [];
  return Math.max(document.documentElement.scrollWidth, ...parts);
}"""
"""How wide the page is, and the dialog on it."""


@pytest.mark.parametrize("width", [360, 2560])
def test_screens_and_dialogs_fit_narrow_and_wide_windows(
    page: Any, lived_in: AdminCluster, width: int
) -> None:
    """No part of a page or dialog is wider than the window."""
    page.set_viewport_size({"width": width, "height": 800})
    found = {name: page.evaluate(WIDEST) for name in open_each(page, lived_in)}
    assert {name: each for name, each in found.items() if each > width} == {}
    assert len(found) == len(SCREENS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 2560])
def test_axe_finds_nothing_serious(page: Any, lived_in: AdminCluster, width: int, scheme: str) -> None:
    """On every screen and in every dialog: contrast, names, roles, order, targets."""
    if not AXE.exists():
        pytest.skip(f"there is no {AXE.name}: make console-test installs it with npm")
    page.context.add_init_script(path=AXE)
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    grave = []
    for name in open_each(page, lived_in):
        report = page.evaluate(LOOK, RULES)
        assert report["rules"] > 10, "axe ran"
        grave += [(name, each) for each in report["found"] if each["impact"] in GRAVE]
    assert grave == []
