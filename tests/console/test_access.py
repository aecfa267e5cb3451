"""Claims about the screens of brokers, users, ACLs and quotas."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from raftlog.base.config.security import STANDARD_AUTHORIZER
from raftlog.testing.cluster import AdminCluster

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def governed() -> Iterator[AdminCluster]:
    """One node with an authorizer, at which every caller of this machine may do everything."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with AdminCluster(1, settings=settings) as running:
        yield running


def test_broker_shows_disks_version_settings_and_log_levels(page: Any, own_cluster: AdminCluster) -> None:
    """Of another node, too; a changed level is in force at once, and what differs from defaults comes first."""
    page.goto(f"{own_cluster.admin_url(1)}/#/brokers")
    row = page.get_by_role("table", name="Brokers").get_by_role("row").filter(has_text="127.0.0.1").nth(1)
    row.get_by_text("in service").wait_for()
    assert re.search(r"\d [KMGT]iB of \d", row.inner_text())
    row.get_by_role("link", name="2", exact=True).click()
    page.get_by_role("heading", name="Broker 2").wait_for()
    page.get_by_text(re.compile(r"version \d+\.\d+\S* · up for \d")).wait_for()
    page.get_by_role("table", name="Disks").get_by_text("● online").wait_for()
    page.get_by_role("link", name="Configs").click()
    names = page.get_by_role("table", name="Configs").locator("tbody td:first-child")
    names.first.wait_for()
    every = names.count()
    page.get_by_label("changed only").check()
    assert 0 < names.count() < every
    page.get_by_role("link", name="Log levels").click()
    level = page.get_by_role("combobox").first
    level.select_option("DEBUG")
    page.get_by_text("logs from DEBUG on").wait_for()
    page.reload()
    assert page.get_by_role("combobox").first.input_value() == "DEBUG"
    page.get_by_role("combobox").first.select_option("INFO")


def test_user_gets_a_password_and_loses_it(page: Any, own_cluster: AdminCluster) -> None:
    """By a typed name; the name of a user is text, whatever it has in it."""
    name = f"{HOSTILE}{uuid.uuid4().hex[:6]}"
    page.goto(f"{own_cluster.admin_url(1)}/#/access")
    page.get_by_role("button", name="Set a password").click()
    shown = page.get_by_role("dialog")
    shown.locator("[name=user]").fill(name)
    shown.locator("[name=password]").fill("in wonderland")
    shown.get_by_role("button", name="Set", exact=True).click()
    row = page.get_by_role("table", name="Users").get_by_role("row").filter(has_text=name)
    row.get_by_text("SCRAM-SHA-256 (4,096 iterations)").wait_for()
    assert page.locator("main img").count() == 0
    row.get_by_role("button", name="Remove SCRAM-SHA-256").click()
    page.get_by_role("dialog").get_by_role("textbox").fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Remove the password").click()
    row.wait_for(state="detached")


def test_acl_is_added_found_and_deleted(page: Any, governed: AdminCluster) -> None:
    """As the HTTP API does it."""
    page.goto(f"{governed.admin_url(1)}/#/access/acls")
    page.get_by_role("button", name="Add an ACL").click()
    shown = page.get_by_role("dialog")
    shown.locator("[name=principal]").fill("User:bob")
    shown.locator("[name=resource_name]").fill("bill")
    shown.locator("[name=pattern_type]").select_option("PREFIXED")
    shown.locator("[name=permission]").select_option("DENY")
    shown.get_by_role("button", name="Add", exact=True).click()
    row = page.get_by_role("table", name="ACLs").get_by_role("row").filter(has_text="User:bob")
    row.get_by_text("topic bill…").wait_for()
    assert row.get_by_role("cell").all_inner_texts()[1:3] == ["deny", "READ"]
    page.get_by_label("Search ACLs").fill("no such rule")
    page.get_by_text("0 ACLs").wait_for()
    page.goto(f"{governed.admin_url(1)}/#/access/acls/User:nobody")
    page.get_by_text("0 ACLs").wait_for()
    page.goto(f"{governed.admin_url(1)}/#/access/acls/User:bob")
    row.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    page.get_by_text("No ACLs.").wait_for()


def test_quota_is_set_and_removed(page: Any, own_cluster: AdminCluster) -> None:
    """Of a user and a client id together, with a default."""
    page.goto(f"{own_cluster.admin_url(1)}/#/access/quotas")
    page.get_by_role("button", name="Set a quota").click()
    shown = page.get_by_role("dialog")
    shown.locator("[name=user]").fill("alice")
    shown.locator("[name=client-id]").fill("*")
    shown.locator("[name=value]").fill("1048576")
    shown.get_by_role("button", name="Set", exact=True).click()
    row = page.get_by_role("table", name="Quotas").get_by_role("row").filter(has_text="alice")
    row.get_by_text("user alice, client id (default)").wait_for()
    row.get_by_text("1.0 MiB/s").wait_for()
    row.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    row.wait_for(state="detached")
