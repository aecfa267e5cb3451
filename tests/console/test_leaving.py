"""A broker leaves by the console, in a real browser: what holds it up is shown, it is kept, and then it is gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api

LEAVES = 3


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[AdminCluster]:
    """Three nodes with a topic that any two of them can hold."""
    with AdminCluster(3) as running:
        url = running.admin_url(1)
        (found,) = Api(url).get("/v3/clusters").body["data"]
        wanted = {"topic_name": "orders", "partitions_count": 6, "replication_factor": 2}
        api = Api(url, f"/v3/clusters/{found['cluster_id']}")
        assert api.ask("POST", "/topics", wanted).status == 201
        yield running


def decommission(page: Any) -> None:
    """Ask for it in the row of the broker."""
    nodes = page.get_by_role("table", name="Nodes")
    nodes.get_by_role("row").nth(LEAVES).get_by_role("button", name="Decommission").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("can be kept").wait_for()
    assert dialog.get_by_role("option").all_inner_texts() == [
        "any brokers, by rack and load",
        "broker 1",
        "broker 2",
    ]
    dialog.get_by_role("button", name="Decommission").click()


@pytest.mark.errors_expected
def test_no_broker_is_drained_without_a_majority(page: Any, own_cluster: AdminCluster) -> None:
    """The buttons wait for a controller, since metadata cannot change, and the page says so."""
    page.goto(own_cluster.admin_url(1))
    drain = page.get_by_role("table", name="Nodes").get_by_role("button", name="Drain").first
    expect = "No broker can be drained or decommissioned until a controller answers."
    drain.wait_for()
    assert drain.is_enabled()
    for node_id in (2, 3):
        own_cluster.kill(node_id)
    page.get_by_text(expect).wait_for()
    assert drain.is_disabled()
    for node_id in (2, 3):
        own_cluster.restart(node_id)
    page.get_by_text(expect).wait_for(state="detached")
    assert drain.is_enabled()


def test_broker_leaves_once_no_partition_is_held_up(page: Any, own_cluster: AdminCluster) -> None:
    """Meanwhile broker 2 is down, so that partitions with a replica there wait."""
    page.goto(own_cluster.admin_url(1))
    card = page.get_by_role("region", name=f"Broker {LEAVES} leaves")
    own_cluster.kill(2)
    page.get_by_text("✕ down").wait_for()
    decommission(page)
    card.get_by_text("cannot move until you do something").wait_for()
    card.get_by_text("broker 2 has a replica that stays, and is not in service").first.wait_for()
    card.get_by_text("its node votes: keep the process running").wait_for()
    page.get_by_text("⇥ leaving").wait_for()
    for width, scheme in ((360, "light"), (360, "dark"), (1280, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    card.get_by_role("button", name="Keep the broker").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep the broker").click()
    card.wait_for(state="detached")
    own_cluster.restart(2)
    page.get_by_text("✕ down").wait_for(state="detached")
    decommission(page)
    nodes = page.get_by_role("table", name="Nodes")
    nodes.get_by_role("link", name=str(LEAVES), exact=True).wait_for(state="detached")
    card.wait_for(state="detached")
