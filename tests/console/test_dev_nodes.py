"""Claims about the nodes of `raftlog dev` in Chaos: killed, paused and started again by buttons."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from raftlog.testing.cluster import AdminCluster
from tests.kit.dev_cluster import dev_cluster

FEW = 10


@pytest.fixture(scope="module")
def developed() -> Iterator[AdminCluster]:
    """Three nodes, as `raftlog dev` runs them without --enable-faults."""
    with dev_cluster(3) as running:
        yield running


def row_of(page: Any, node_id: int) -> Any:
    """Return the row of a node."""
    return page.get_by_role("table", name="Nodes").locator("tbody tr").nth(node_id - 1)


def test_node_is_killed_after_a_question_and_started_again(page: Any, developed: AdminCluster) -> None:
    """A pause of another node needs no question while a majority is left."""
    page.goto(f"{developed.admin_url(1)}/#/chaos")
    page.get_by_text("also makes disks slow").wait_for()
    row_of(page, 2).get_by_text("● running").wait_for()
    page.get_by_role("button", name="Pause node 2").click()
    row_of(page, 2).get_by_text("‖ paused").wait_for()
    page.get_by_role("button", name="Kill node 3").click()
    page.get_by_role("dialog").get_by_text("1 node of 3 would be left running").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Resume node 2").click()
    row_of(page, 2).get_by_text("● running").wait_for()
    page.get_by_role("button", name="Kill node 3").click()
    page.get_by_role("dialog").get_by_role("button", name="Kill", exact=True).click()
    row_of(page, 3).get_by_text("✕ down").wait_for()
    assert not developed.nodes[3].running
    page.get_by_role("button", name="Restart node 3").click()
    row_of(page, 3).get_by_text("● running").wait_for()


def test_node_is_cut_off_from_the_others_and_healed(page: Any, developed: AdminCluster) -> None:
    """The dialog says what it does; the row says how long it lasts."""
    developed.wait_ready()
    page.goto(f"{developed.admin_url(1)}/#/chaos")
    page.get_by_role("button", name="Cut off node 2").click()
    page.get_by_role("dialog").get_by_text("For 60 seconds its connections with the other nodes").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Cut off", exact=True).click()
    row_of(page, 2).get_by_text("cut off, ").wait_for()
    assert developed.nodes[2].running
    page.get_by_role("button", name="Cut off node 3").click()
    page.get_by_role("dialog").get_by_text("1 node of 3 would be left together").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Heal node 2").click()
    row_of(page, 2).get_by_role("button", name="Cut off node 2").wait_for()
    assert "cut off" not in row_of(page, 2).text_content()
    developed.wait_ready()


@pytest.mark.errors_expected
def test_killed_node_of_the_page_says_where_to_continue(page: Any, developed: AdminCluster) -> None:
    """With a link to another node, which starts it again; then the page continues."""
    developed.wait_ready()
    page.goto(f"{developed.admin_url(1)}/#/chaos")
    page.get_by_role("button", name="Start load").click()
    page.get_by_text(re.compile("[1-9][0-9]* records? acknowledged")).wait_for()
    page.get_by_role("button", name="Kill node 1").click()
    page.get_by_role("dialog").get_by_text("Node 1 serves this page").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Kill", exact=True).click()
    page.get_by_text("Node 1, which serves this page, was killed.").wait_for()
    page.get_by_text("The node has not answered since").wait_for()
    for _ in range(FEW):  # already sent
        page.wait_for_event("requestfailed")
    began = time.monotonic()
    for _ in range(FEW):
        page.wait_for_event("requestfailed")
    assert time.monotonic() - began > 1, "a browser logs each request that finds no node"
    with page.context.new_page() as other:
        other.goto(page.locator("main").get_by_role("link", name="node 2").get_attribute("href"))
        other.get_by_role("button", name="Restart node 1").click()
        row_of(other, 1).get_by_text("● running").wait_for()
    page.get_by_text("Node 1, which serves this page, was killed.").wait_for(state="detached")
    row_of(page, 1).get_by_text("● running").wait_for()


def test_screen_says_where_nodes_can_be_killed(page: Any) -> None:
    """A cluster that `raftlog dev` does not run has no such screen in its menu, and no button."""
    with AdminCluster(1) as running:
        page.goto(f"{running.admin_url(1)}/#/chaos")
        page.get_by_text(
            "Nodes can be killed, paused and cut off here in a cluster of raftlog dev"
        ).wait_for()
        assert page.get_by_role("link", name="Chaos").count() == 0
        assert page.locator("main button").count() == 0
