"""Claims about observations: what is taken out of answers, and what stays."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.records.batch import new_record
from raftlog_chaos.conformance import batches
from raftlog_chaos.conformance.messages import api_key, as_message, build_request
from raftlog_chaos.conformance.observation import RULES, Normaliser

START_MS = 1_795_000_000_000
RECORDS = [new_record(b"k", b"a", timestamp=START_MS), new_record(None, None, timestamp=START_MS + 5)]


def normal() -> Normaliser:
    """Return a normaliser of a history that knows one name."""
    made = Normaliser(START_MS)
    made.add_name("topic-77aa", "topic")
    return made


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"throttle_time": 5, "error_code": "NONE"}, {"error_code": "NONE"}),
        ({"error_message": "topic-77aa is odd"}, {}),
        ({"name": "topic-77aa"}, {"name": "topic"}),
        ({"member_id": ""}, {"member_id": ""}),
        ({"timestamp": -1}, {"timestamp": -1}),
        ({"timestamp": START_MS + 7}, {"timestamp": "start+7"}),
        ({"timestamp": START_MS - 7}, {"timestamp": "start-7"}),
        ({"timestamp": START_MS + 130_000}, {"timestamp": "now"}),
        ({"offset": START_MS + 7}, {"offset": START_MS + 7}),
        ({"topics": [{"name": "b"}, {"name": "a"}]}, {"topics": [{"name": "a"}, {"name": "b"}]}),
        (
            {"results": [{"index": 2}, {"error_code": "NONE"}]},
            {"results": [{"error_code": "NONE"}, {"index": 2}]},
        ),
    ],
)
def test_only_what_a_rule_names_is_changed(answer: Any, shown: Any) -> None:
    """Everything else of an answer must be equal on both sides."""
    assert normal().answered(answer) == shown


def test_ids_get_labels_in_the_order_in_which_they_are_seen() -> None:
    """Two brokers hand out different ids; what a client relies on is which of them are equal."""
    made = normal()
    assert made.answered([{"producer_id": 9000}, {"producer_id": 12}, {"producer_id": 9000}]) == [
        {"producer_id": "producer-1"},
        {"producer_id": "producer-2"},
        {"producer_id": "producer-1"},
    ]
    assert made.asked({"producer_id": 12}) == {"producer_id": "producer-2"}


def test_an_id_that_the_history_made_up_stays_as_it_is() -> None:
    """A made-up id is the same on both sides, also where an answer repeats it."""
    made = normal()
    assert made.asked({"producer_id": 77}) == {"producer_id": 77}
    assert made.answered({"producer_id": 77}) == {"producer_id": 77}


def test_no_field_has_two_rules() -> None:
    """The table would not say which of them is in force."""
    fields = [field for rule in RULES for field in rule.fields]
    assert len(fields) == len(set(fields))
    assert all(rule.why.endswith(".") or ":" in rule.why for rule in RULES)


def test_a_header_shows_only_what_its_records_do_not_make() -> None:
    """A usual batch is its records; an odd field stands beside them."""
    (usual,) = batches.read(batches.build(RECORDS)) or ()
    assert list(usual) == ["base_offset", "records"]
    (odd,) = batches.read(batches.build(RECORDS, codec=3, max_timestamp=-1, crc=1)) or ()
    assert {name: odd[name] for name in odd if name != "records"} == {
        "base_offset": 0,
        "crc": "wrong",
        "attributes": 3,
        "max_timestamp": -1,
    }
    assert odd["records"] == usual["records"]


def test_a_crc_holds_unless_it_is_given() -> None:
    """A batch with an odd field is a batch that a client with that fault would send."""
    (found,) = batches.read(batches.build(RECORDS, base_sequence=5)) or ()
    assert "crc" not in found
    with pytest.raises(TypeError, match="'sequence'"):
        batches.build(RECORDS, sequence=5)


@pytest.mark.parametrize("odd", [b"", b"x", batches.build(RECORDS)[:-1], batches.build(RECORDS) + b"x" * 70])
def test_bytes_that_are_no_batch_are_shown(odd: bytes) -> None:
    """A broker may send anything, and a history too."""
    assert batches.read(None) is None
    found = batches.read(odd)
    assert found is not None
    assert bool(odd) == any("bytes" in each for each in found)


def test_a_request_is_built_of_plain_data_in_any_version() -> None:
    """Fields that a version does not have are left out, and misspelt fields are refused."""
    key = api_key("Produce")
    data = [{"name": "t", "topic_id": None, "partition_data": [{"index": 3, "records": b"x"}]}]
    shown = as_message(build_request(key, 9, {"acks": -1, "topic_data": data}), omit_defaults=True)
    assert shown == {
        "acks": -1,
        "topic_data": [{"name": "t", "partition_data": [{"index": 3, "records": b"x"}]}],
    }
    with pytest.raises(TypeError, match="timeout_s"):
        build_request(key, 9, {"timeout_s": 1})
    with pytest.raises(ValueError, match="no API 'Prodoce'"):
        api_key("Prodoce")
