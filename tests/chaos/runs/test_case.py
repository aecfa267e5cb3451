"""Claims about case files: their content, and that all mistakes are reported at once, by name."""

from __future__ import annotations

import asyncio
from types import ModuleType

import pytest

from raftlog_chaos.faults import FAULTS
from raftlog_chaos.runs.case import CaseError, parse_case, read_cases, suite_of
from raftlog_chaos.runs.rig import Unavailable
from raftlog_chaos.testbeds.find import SUITES, TestbedKind
from raftlog_chaos.testbeds.testbed import settings_by_node
from raftlog_chaos.workloads.stock import StockPorts

KNOWN = ("kill", "pause")

BAD = """
title = 3
suites = "ci"
gibberish = 1

[workload]
writers = -1
rates = 3
subscribe = 1

[faults]
mix = ["kil"]
steps = [{ fault = "kill", for_s = "x" }, {}]

[expect]
unavailable_s = { pause = -1 }
allowed = [1]
"""


def test_everything_wrong_with_a_case_is_said_at_once_by_name():
    """An author should not have to run the file again for each mistake."""
    with pytest.raises(CaseError) as caught:
        parse_case("bad", BAD, KNOWN)
    assert set(caught.value.faults) == {
        "title: a string, not 3",
        "suites: a list of strings, not 'ci'",
        "gibberish: nobody knows 'gibberish'",
        "workload.writers: 0 to 64, not -1",
        "workload.rates: nobody knows 'rates' (perhaps 'rate')",
        "workload.subscribe: true or false, not 1",
        "faults.steps[0].for_s: a number, not 'x'",
        "faults.steps[1].fault: is missing",
        "faults: nobody knows 'kil' (perhaps 'kill')",
        "faults: either steps or a mix",
        "expect.unavailable_s.pause: 0 to 3600, not -1",
        "expect.allowed: a list of strings, not [1]",
        "suites: name at least one",
    }


def test_what_is_no_toml_is_said_with_the_case():
    """A syntax error, too, names the file."""
    with pytest.raises(CaseError, match=r"^odd: no TOML: "):
        parse_case("odd", "faults = [", KNOWN)


def test_a_limit_for_a_fault_that_never_comes_is_a_mistake():
    """It would be an expectation that cannot be violated."""
    text = 'suites = ["x"]\n[faults]\nmix = ["kill"]\n[expect]\nunavailable_s = { pause = 3 }'
    with pytest.raises(CaseError, match=r"expect\.unavailable_s\.pause: is none of this case's faults"):
        parse_case("odd", text, KNOWN)


def test_a_shorter_run_is_expected_to_do_less_but_a_longer_one_not_more():
    """--minutes changes how long there are faults; the file's figures are for its own time."""
    faults = '[faults]\nmix = ["kill"]\nseconds = 20'
    expect = "[expect]\nacked = 100\nregistered_during_faults = 20\ninjections = 4"
    text = f'suites = ["x"]\n{faults}\n{expect}'
    case = parse_case("some", text, KNOWN)
    assert case.lasting(5).expect.acked == 25
    assert case.lasting(5).expect.injections == 1
    assert case.lasting(5).expect.registered_during_faults == 5
    assert case.lasting(200).expect.acked == 100
    assert case.lasting(200).faults.seconds == 200


def test_a_testbed_without_tls_is_not_asked_for_a_secured_case(tmp_path):
    """The case is not run there, rather than run without what it is about."""
    kind = TestbedKind("bare", ModuleType("bare"))
    with pytest.raises(Unavailable, match="no listener with TLS"):
        asyncio.run(kind.open(tmp_path, nodes=3, settings={}, seed=1, secured=True))
    assert parse_case("x", 'suites = ["x"]\nsecured = true\n[expect]\ninjections = 0', KNOWN).secured


SIMULATED = {"log-trouble", "out-of-files"}
"""Faults of the simulator alone."""


def test_all_cases_that_ship_can_be_read():
    """The suite of every merge is nine of them; every fault that real nodes can have comes up among all of them."""
    cases = read_cases(SUITES, FAULTS)
    assert len(suite_of(cases, "ci")) == 9
    full = suite_of(cases, "full")
    assert {fault for case in full for fault in case.faults.names} == set(FAULTS) - SIMULATED
    assert suite_of(cases, "nothing") == []


def test_the_suite_of_every_merge_is_over_in_six_minutes():
    """Its own seconds leave half of the time for starting, healing, reading and judging."""
    own_s = sum(
        case.faults.quiet_s + case.faults.seconds for case in suite_of(read_cases(SUITES, FAULTS), "ci")
    )
    assert own_s <= 240


def test_clients_are_in_the_racks_of_the_nodes() -> None:
    """A node's own number is in a setting that goes to all."""
    text = 'suites = ["x"]\n[settings]\n"broker.rack" = "zone-{node.id}"\n[expect]\ninjections = 0'
    case = parse_case("x", text, KNOWN)
    assert case.racks == ("zone-1", "zone-2", "zone-3")
    assert settings_by_node(case.settings, 2)[2] == {"broker.rack": "zone-2"}
    ports = StockPorts("127.0.0.1:1", racks=case.racks)
    assert [ports(process, "reader")._settings["client.rack"] for process in (0, 3, 4)] == [
        "zone-1",
        "zone-1",
        "zone-2",
    ]
