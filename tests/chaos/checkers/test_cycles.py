"""G0 and G1c with their variants, and the graph that they are found in."""

from __future__ import annotations

import random
from array import array

from raftlog_chaos.checkers.graph import Edges, Graph, components, shortest_circle
from tests.chaos.checkers.told_history import KEY, ToldHistory, reading, sending

OTHER = "t-1"


def interleaved() -> ToldHistory:
    """Two transactions at a time that write two keys in opposite orders."""
    tale = ToldHistory()
    for process in (1, 2):
        tale.line(process, "invoke", "txn", [["send", KEY, process], ["send", OTHER, process]])
    tale.line(1, "ok", "txn", [sending(0, 1), sending(1, 1, OTHER)])
    tale.line(2, "ok", "txn", [sending(1, 2), sending(0, 2, OTHER)])
    return tale


def read_all(tale: ToldHistory) -> ToldHistory:
    found = {KEY: [[0, 1], [1, 2]], OTHER: [[0, 2], [1, 1]]}
    tale.both(9, "ok", "poll", [["poll", found]])
    return tale


def test_writes_that_precede_each_other_in_two_keys_are_g0():
    """jepsen.tests.kafka: and never invalid, since Kafka does not isolate writes."""
    verdict = read_all(interleaved()).verdict()
    assert set(verdict.anomalies) == {"G0"} and verdict.valid
    (finding,) = verdict.anomalies["G0"]
    assert [op.process for op in finding.ops] == [1, 2] and finding.explanation.count("-ww→") == 2


def test_writes_in_one_order_are_no_cycle():
    """Both keys agree."""
    tale = (
        ToldHistory().txn(1, sending(0, 1), sending(0, 1, OTHER)).txn(2, sending(1, 2), sending(1, 2, OTHER))
    )
    tale.both(9, "ok", "poll", [["poll", {KEY: [[0, 1], [1, 2]], OTHER: [[0, 1], [1, 2]]}]])
    assert tale.found() == set()


def test_a_reader_that_wrote_before_what_it_read_is_g1c():
    """t0 by ww before t1, t1 read by t0: normal where writes are not isolated."""
    tale = ToldHistory()
    tale.line(1, "invoke", "txn", [["send", KEY, "a"], ["poll"]])
    tale.txn(2, sending(1, "b"), sending(0, "x", OTHER))
    tale.line(1, "ok", "txn", [sending(0, "a"), reading((0, "x"), key=OTHER)])
    verdict = tale.poll(9, (0, "a"), (1, "b")).verdict()
    assert set(verdict.anomalies) == {"G1c"} and verdict.valid
    assert "-wr→" in verdict.anomalies["G1c"][0].explanation


def test_two_transactions_that_read_each_other_are_a_cycle_of_reads_alone():
    """A G1c with --no-ww-deps is always invalid."""
    tale = ToldHistory()
    for process, key in ((1, KEY), (2, OTHER)):
        tale.line(process, "invoke", "txn", [["send", key, process], ["poll"]])
    tale.line(1, "ok", "txn", [sending(0, 1), reading((0, 2), key=OTHER)])
    tale.line(2, "ok", "txn", [sending(0, 2, OTHER), reading((0, 1))])
    verdict = tale.verdict()
    assert set(verdict.anomalies) == {"G1c", "G1c-pure"} and not verdict.valid
    assert verdict.faults() == [f"G1c-pure: {verdict.anomalies['G1c-pure'][0].explanation}"]


def test_reads_of_an_aborted_transaction_make_no_cycle():
    """The same, but one transaction was aborted and its writes were not read."""
    tale = ToldHistory()
    for process, key in ((1, KEY), (2, OTHER)):
        tale.line(process, "invoke", "txn", [["send", key, process], ["poll"]])
    tale.line(1, "ok", "txn", [sending(0, 1)])
    tale.line(2, "fail", "txn", [sending(0, 2, OTHER), reading((0, 1))])
    assert tale.poll(9, (0, 1)).found() == set()


def test_a_transaction_that_read_another_is_no_cycle():
    """One direction only."""
    tale = ToldHistory().txn(1, sending(0, 1)).txn(2, sending(0, 2, OTHER), reading((0, 1)))
    assert tale.both(9, "ok", "poll", [reading((0, 2), key=OTHER)]).found() == set()


def test_an_unproven_transaction_is_in_no_cycle():
    """Only what must have committed has edges."""
    tale = interleaved()
    tale.ops[3].type = "info"
    tale.both(9, "ok", "poll", [["poll", {KEY: [[0, 1]], OTHER: [[1, 1]]}]])
    assert tale.found() == set()
    tale.both(7, "fail", "poll", [["poll", {KEY: [[0, 1], [1, 2]], OTHER: [[0, 2], [1, 1]]}]])
    assert "G0" not in tale.found()  # its values have a place now, but it is not proven yet
    assert "G0" in read_all(tale).found()


def test_one_processes_order_against_the_logs_is_g0_process():
    """A process's later write precedes its earlier write."""
    tale = ToldHistory().send(1, "a", 1).send(1, "b", 0).poll(9, (0, "b"), (1, "a"))
    assert {"G0-process", "G0-realtime"} <= tale.found()


def test_real_time_against_the_log_is_g0_realtime():
    """Across processes; shown with the invocations, since their order matters."""
    tale = ToldHistory().send(1, "a", 1).send(2, "b", 0).poll(9, (0, "b"), (1, "a"))
    verdict = tale.verdict()
    assert "G0-realtime" in verdict.anomalies
    assert not {"G0-process", "G1c-realtime", "G1c-process"} & set(verdict.anomalies)
    assert [op.type for op in verdict.anomalies["G0-realtime"][0].ops] == ["invoke", "ok", "invoke", "ok"]


def test_real_time_order_is_found_through_many_dependencies():
    """Writers in between overlap with both ends, so that only the whole chain shows it."""
    tale = ToldHistory()
    for value in "bc":
        tale.line(ord(value), "invoke", "send", [["send", KEY, value]])
    tale.send(1, "d", 3).send(2, "a", 0)
    for offset, value in enumerate("bc", 1):
        tale.line(ord(value), "ok", "send", [sending(offset, value)])
    verdict = tale.poll(9, *enumerate("abcd")).verdict()
    (finding,) = verdict.anomalies["G0-realtime"]
    assert finding.explanation.count("-ww→") == 3 and finding.explanation.count("-realtime→") == 1


def test_of_operations_that_follow_each_other_the_first_that_is_too_late_is_found():
    """Values behind it are late for the same reason."""
    tale = ToldHistory().send(1, "b", 1).send(1, "c", 2).send(1, "d", 3).send(2, "a", 0)
    verdict = tale.poll(9, *enumerate("abcd")).verdict()
    assert verdict.cases["G0-realtime"] == 1
    assert [op.process for op in verdict.anomalies["G0-realtime"][0].ops] == [1, 1, 2, 2]


def test_lateness_goes_round_a_circle():
    """late → first of the circle → … → second → early: whichever of the two comes first."""
    for first, second in ((1, 2), (2, 1)):
        tale, micros = ToldHistory(), {1: [(KEY, 1, 1), (OTHER, 1, 1)], 2: [(KEY, 2, 2), (OTHER, 2, 0)]}
        micros[first].append(("in", first, 1))
        micros[second].append(("out", second, 0))
        for process in (1, 2):
            tale.line(process, "invoke", "txn", [["send", key, value] for key, value, _ in micros[process]])
        tale.send(3, "early", 1, key="out").send(4, "late", 0, key="in")
        for process in (1, 2):
            done = [sending(offset, value, key) for key, value, offset in micros[process]]
            tale.line(process, "ok", "txn", done)
        assert "G0-realtime" in tale.found()


def test_reading_what_is_behind_a_write_of_the_future_is_g1c_realtime():
    """The poll ended before the first of two writes began, and yet it read the second."""
    tale = ToldHistory()
    tale.send(4, "x", 0)
    tale.line(2, "invoke", "send", [["send", KEY, "b"]])
    tale.poll(3, (0, "x")).both(5, "ok", "poll", [reading((0, "x"), (2, "b"))], rebalanced=[KEY])
    tale.send(1, "a", 1)
    tale.line(2, "ok", "send", [sending(2, "b")])
    verdict = tale.poll(9, (0, "x"), (1, "a"), (2, "b")).verdict()
    assert set(verdict.anomalies) == {"G1c-realtime"} and verdict.valid


def test_a_process_that_read_what_lies_behind_its_next_write_is_g1c_process():
    """wr, process and ww close the circle."""
    tale = ToldHistory()
    tale.line(2, "invoke", "send", [["send", KEY, "b"]])
    tale.poll(1, (1, "b"))
    tale.send(1, "a", 0)
    tale.line(2, "ok", "send", [sending(1, "b")])
    assert tale.poll(9, (0, "a"), (1, "b")).found() == {"G1c-process", "G1c-realtime"}


# --- the graph itself


def graph_of(nodes: int, *edges: tuple[int, int]) -> Graph:
    return Graph(nodes, [Edges(0, array("i", [a for a, _ in edges]), array("i", [b for _, b in edges]))])


def test_components_are_those_of_a_plain_search():
    """Random graphs: nodes that reach each other are together, and what is popped first leads nowhere later."""
    chance = random.Random(5)
    for _ in range(200):
        nodes = chance.randint(1, 9)
        edges = [(chance.randrange(nodes), chance.randrange(nodes)) for _ in range(chance.randint(0, 14))]
        reach = {a: {a} for a in range(nodes)}
        for _ in range(nodes):
            for a, b in edges:
                for reached in reach.values():
                    reached.update({b} if a in reached else set())
        expected = {frozenset(b for b in reach[a] if a in reach[b]) for a in reach}
        found = components(graph_of(nodes, *edges))
        assert {frozenset(circle) for circle in found.circles} == {each for each in expected if len(each) > 1}
        position = {node: at for at, node in enumerate(found.popped)}
        assert len(position) == nodes
        assert all(position[b] < position[a] for a, b in edges if a not in reach[b])


def test_a_chain_of_any_length_needs_no_recursion():
    """A key of a hundred thousand values is one chain."""
    chain = [(at, at + 1) for at in range(100_000)]
    assert not components(graph_of(100_001, *chain)).circles
    (circle,) = components(graph_of(100_001, *chain, (100_000, 0))).circles
    assert len(circle) == 100_001


def test_the_shortest_circle_with_what_it_must_contain_is_found():
    """Of a component's circles."""
    short = Edges(0, array("i", [0, 1, 2, 1]), array("i", [1, 2, 0, 0]))
    graph = Graph(3, [short, Edges(1, array("i", [2]), array("i", [0]))])
    assert shortest_circle(graph, [0, 1, 2], through=0) == [(0, 0), (1, 0)]
    assert sorted(shortest_circle(graph, [0, 1, 2], through=0, containing=1)) == [(0, 0), (1, 0), (2, 1)]
    assert shortest_circle(graph, [0, 1, 2], through=2) == []
