"""Claims about the records screen in a real browser: decoded records, pages, search, downloads, records sent again."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import re
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from raftlog.testing.cluster import AdminCluster
from tests.admin.conftest import Api
from tests.console.conftest import text_left, write
from tests.kit.waits import until

HOSTILE = "<img src=x onerror=alert(1)>\"'&amp;</script><script>alert(2)</script>"
_numbers = itertools.count(1)


class Records:
    """A topic on the screen."""

    def __init__(self, page: Any, cluster: AdminCluster, api: Api, partitions: int) -> None:
        self.page, self.api, self.cluster = page, api, cluster
        self.node = Api(cluster.admin_url(1))
        self.name = f"shown-{next(_numbers)}"
        wanted = {"topic_name": self.name, "partitions_count": partitions, "replication_factor": 3}
        assert api.ask("POST", "/topics", wanted).status == 201
        until(lambda: self.node.get(f"/v1/topics/{self.name}/replicas").status == 200, "the topic is known")

    def write(self, value: bytes | str, **more: Any) -> None:
        data = value.encode() if isinstance(value, str) else value
        content = {"type": "BINARY", "data": base64.b64encode(data).decode()}
        write(self.api, self.name, content, **{"partition_id": 0, **more})

    def avro(self, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
        """Return a payload after its schema was registered."""
        client = SchemaRegistryClient({"url": self.cluster.schema_registry_url(1)})
        context = SerializationContext(self.name, MessageField.VALUE)
        payload = AvroSerializer(client, json.dumps(schema))(value, context)
        assert payload is not None
        return payload

    def open(self) -> None:
        self.page.goto(f"{self.cluster.admin_url(1)}/#/topics/{self.name}/records")
        self.page.get_by_role("status").filter(has_text="record").first.wait_for()

    def row(self, text: str) -> Any:
        return self.page.get_by_role("row").filter(has_text=text).first


@pytest.fixture
def records(page: Any, own_cluster: AdminCluster, api: Api) -> Records:
    return Records(page, own_cluster, api, 1)


def test_avro_record_is_shown_decoded_with_its_schema(records: Records) -> None:
    """In the list, in the dialog as a tree, and as its bytes if the user wants them."""
    schema = {"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "string"}]}
    records.write(records.avro(schema, {"customer": "Ada Lovelace"}))
    records.open()
    row = records.row("Ada Lovelace")
    assert "Avro v1" in row.inner_text()
    row.click()
    dialog = records.page.get_by_role("dialog")
    dialog.get_by_text(f"Avro by {records.name}-value version 1").wait_for()
    assert dialog.locator(".leaf").inner_text() == 'customer: "Ada Lovelace"'
    dialog.get_by_label("Show the value as").select_option("hex")
    dialog.get_by_text("41 64 61").wait_for()


def test_payload_that_does_not_parse_shows_its_bytes_and_why(records: Records) -> None:
    """A schema that is not there; the record can be read as text all the same."""
    records.write(b"\0\0\x0f\x42\x3fhello")
    records.open()
    records.row("68 65 6c 6c 6f").click()
    dialog = records.page.get_by_role("dialog")
    dialog.get_by_text("no schema with id 999999").wait_for()
    dialog.get_by_label("Show the value as").select_option("text")
    dialog.locator("pre").filter(has_text="hello").wait_for()


def test_json_that_does_not_fit_its_schema_is_shown_with_a_note(records: Records) -> None:
    """In the list by a mark, in the dialog in words; and what was not checked."""
    schema = {"properties": {"sku": {"pattern": "(?=x)"}, "price": {"type": "number"}}}
    client = SchemaRegistryClient({"url": records.cluster.schema_registry_url(1)})
    schema_id = client.register_schema(f"{records.name}-value", Schema(json.dumps(schema), "JSON"))
    for value in ({"price": 1}, {"price": "cheap", "sku": "y"}):
        records.write(b"\0" + schema_id.to_bytes(4, "big") + json.dumps(value).encode())
    records.open()
    assert "JSON Schema v1 !" not in records.row('{"price": 1}').inner_text()
    row = records.row("cheap")
    assert "JSON Schema v1 !" in row.inner_text()
    is_whole = "each => each.scrollWidth <= each.clientWidth"
    for width in (1280, 400):
        records.page.set_viewport_size({"width": width, "height": 900})
        assert row.locator(".decoded").evaluate(is_whole), "the mark is not cut off"
    row.click()
    dialog = records.page.get_by_role("dialog")
    dialog.get_by_text('Does not fit its schema: at /price: "cheap" is not of type number').wait_for()
    dialog.get_by_text("Not all of its schema was checked: the pattern '(?=x)' is not one").wait_for()


def test_phone_shows_the_first_record_with_its_time_and_decoder(records: Records) -> None:
    """The controls are folded; what has no column stands below the row. The key of the filter unfolds them."""
    records.write('{"name": "Ada"}', headers=[{"name": "source", "value": "c2hvcA=="}])
    records.write("plain")
    records.page.set_viewport_size({"width": 400, "height": 640})
    records.open()
    row = records.row("Ada")
    box = row.bounding_box()
    assert box["y"] + box["height"] < 640, "the first record is in sight"
    assert re.search(r"20\d\d-\d\d-\d\d .*JSON.*source=shop", row.inner_text(), re.DOTALL)
    plain = records.row("plain")
    assert "Headers" not in plain.inner_text()
    first, second = plain.locator("> *").first, plain.locator(".below")
    title = records.page.get_by_role("columnheader", name="Partition")
    for each in (first, title):
        assert abs(text_left(each) - text_left(second)) < 1
    decoder = records.page.get_by_label("Decode values as")
    assert not decoder.is_visible()
    records.page.get_by_role("button", name="More").click()
    decoder.wait_for()
    records.page.get_by_role("button", name="More").click()
    records.page.keyboard.press("/")
    records.page.get_by_label("Filter records", exact=True).fill("nobody")
    records.page.get_by_text("0 records of 2 that were read").wait_for()
    records.page.set_viewport_size({"width": 1280, "height": 900})
    assert records.page.get_by_role("columnheader", name="Decoded").is_visible()


def test_kind_of_a_key_follows_its_field(records: Records) -> None:
    """Text if something is typed, otherwise null; the record has the key that the form says."""
    records.open()
    page = records.page
    page.get_by_role("button", name="Produce").click()
    kind, key = page.locator("dialog [name=keyType]"), page.locator("dialog [name=key]")
    for typed, expected in (("k1", "STRING"), ("", ""), ("k2", "STRING")):
        key.fill(typed)
        assert kind.input_value() == expected
    kind.select_option("JSON")
    key.fill("17")
    assert kind.input_value() == "JSON"
    kind.select_option("")
    page.locator("dialog [name=value]").fill("without a key")
    page.get_by_role("dialog").get_by_role("button", name="Produce").click()
    assert records.row("without a key").locator(".key").inner_text() == "null"


def test_newer_is_offered_only_where_newer_records_are(records: Records) -> None:
    """At the newest record it waits until another is written."""
    records.write("value-1")
    records.open()
    newer = records.page.get_by_role("button", name="Newer")
    records.row("value-1").wait_for()
    assert newer.is_disabled()
    records.write("value-2")
    newer.click()
    records.row("value-2").wait_for()
    assert newer.is_disabled()


def test_hostile_bytes_never_become_markup(records: Records) -> None:
    """In keys, values, headers, and the names in a schema; in the list, the dialog and the search."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "text", "type": "string", "doc": HOSTILE}]}
    records.write(records.avro(schema, {"text": HOSTILE}), key={"type": "STRING", "data": HOSTILE})
    header = {"name": HOSTILE, "value": base64.b64encode(HOSTILE.encode()).decode()}
    records.write(HOSTILE, headers=[header])
    client = SchemaRegistryClient({"url": records.cluster.schema_registry_url(1)})
    schema_id = client.register_schema(HOSTILE, Schema('"string"', "AVRO"))
    text = HOSTILE.encode()
    records.write(
        b"\0" + schema_id.to_bytes(4, "big") + bytes([2 * len(text) & 127 | 128, 2 * len(text) >> 7]) + text
    )
    records.open()
    for number in range(3):
        records.page.get_by_role("row").filter(has_text="<img").nth(number).click()
        dialog = records.page.get_by_role("dialog")
        dialog.get_by_text("<img").first.wait_for()
        assert dialog.locator("img, script").count() == 0
        records.page.keyboard.press("Escape")
        records.page.keyboard.press("Escape")
    records.page.get_by_role("button", name="Search the topic").click()
    records.page.get_by_label("Anywhere").fill("<IMG")
    records.page.get_by_role("button", name="Search", exact=True).click()
    records.page.get_by_text("Done. 3 records").wait_for()
    assert records.page.locator("main img, main script").count() == 0


def test_topic_is_searched_as_a_whole_with_progress(records: Records) -> None:
    """Records that are on no page are found, and say how far the search came."""
    for number in range(30):
        records.write(json.dumps({"n": number}))
    records.open()
    records.page.get_by_role("button", name="Search the topic").click()
    card = records.page.get_by_label("Search the topic")
    tops = [card.get_by_label(each).bounding_box()["y"] for each in ("From", "Until")]
    assert tops[0] == tops[1], "both ends of the range are in one line"
    card.get_by_label("In the value").fill('"n": 17')
    card.get_by_role("button", name="Search", exact=True).click()
    card.get_by_text("Done. 1 record; 30 of 30 offsets read (100 %).").wait_for()
    card.get_by_role("row").filter(has_text='{"n": 17}').click()
    records.page.get_by_role("dialog", name="Record 17 of partition 0").wait_for()


def test_pages_lead_to_older_and_newer_records(records: Records) -> None:
    """From the newest back to the oldest, and on again, without a gap."""
    for number in range(60):
        records.write(f"value-{number:02}")
    records.open()
    page = records.page
    page.get_by_label("Records of each partition").select_option("25")
    page.get_by_text("25 records.").wait_for()
    for first, count in ((35, 25), (10, 25), (0, 10)):
        records.row(f"value-{first:02}").wait_for()
        page.get_by_text(f"{count} records.").wait_for()
        shown = set(re.findall(r"value-(\d\d)", page.locator("main").inner_text()))
        assert shown == {f"{number:02}" for number in range(first, first + count)}
        if first:
            page.get_by_role("button", name="Older").click()
    assert page.get_by_role("button", name="Older").is_disabled()
    page.get_by_role("button", name="Newer").click()
    records.row("value-10").wait_for()
    page.get_by_text("25 records.").wait_for()


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_range_is_saved_as_a_file(records: Records, kind: str) -> None:
    """Decoded JSON stays JSON with its digits, bytes are base64, and a cell keeps its commas and quotes."""
    records.write('{"n": 12345678901234567890,\n"s": "a,b"}', key={"type": "STRING", "data": 'say "hi"'})
    records.write(b"\xff\xfe")
    records.write("=1+1", key={"type": "STRING", "data": ""})
    records.write("-1.5e3")
    records.open()
    records.page.get_by_role("button", name="Download", exact=True).click()
    dialog = records.page.get_by_role("dialog")
    dialog.get_by_label("Format").select_option(kind)
    with records.page.expect_download() as started:
        dialog.get_by_role("button", name="Download").click()
    lines = started.value.path().read_bytes()
    assert started.value.suggested_filename == f"{records.name}.{kind}"
    if kind == "jsonl":
        first, second, *_ = (json.loads(each) for each in lines.splitlines())
        assert first["value"] == {"n": 12345678901234567890, "s": "a,b"}
        assert (first["key"], second["value"]) == ('say "hi"', {"base64": "//4="})
    else:
        rows = list(csv.DictReader(io.StringIO(lines.decode())))
        assert rows[0]["value"] == '{"n": 12345678901234567890,\n"s": "a,b"}'
        assert (rows[0]["key"], rows[1]["value"], rows[1]["offset"]) == ('say "hi"', "ff fe", "1")
        assert [each["value"] for each in rows[2:]] == ["'=1+1", "-1.5e3"], "a spreadsheet computes nothing"
        assert b',"","\'=1+1"' in lines and b',,"-1.5e3"' in lines, "an empty key is not null"


def test_record_says_how_much_of_it_is_not_shown(records: Records) -> None:
    """Of a long list, and of a long text."""
    records.write(json.dumps([7] * 1_500))
    records.write("x" * 200_100)
    records.open()
    records.row("7, 7").click()
    dialog = records.page.get_by_role("dialog")
    dialog.get_by_text("[1500]").click()
    dialog.get_by_text("and 500 more").wait_for()
    records.page.keyboard.press("Escape")
    records.row("xxx").click()
    dialog.get_by_text("and 100 more characters").wait_for()


def test_value_of_a_record_is_saved_byte_by_byte(records: Records) -> None:
    """From its dialog."""
    records.write(b"\xff\x00binary")
    records.open()
    records.row("ff 00").click()
    with records.page.expect_download() as started:
        records.page.get_by_role("button", name="Download value").click()
    assert started.value.path().read_bytes() == b"\xff\x00binary"
    assert started.value.suggested_filename == f"{records.name}-0-0.value"


def test_record_is_sent_again_after_a_confirmation(records: Records) -> None:
    """The copy has the key and the value of the first, and appears in the list."""
    records.write("only once", key={"type": "STRING", "data": "k1"})
    records.open()
    records.row("only once").click()
    records.page.get_by_role("button", name="Send again").click()
    confirm = records.page.get_by_role("dialog", name="Send record 0 again")
    confirm.get_by_role("button", name="Send again").click()
    records.page.get_by_text("Written to partition 0").wait_for()
    records.page.get_by_text("2 records.").wait_for()
    assert records.page.get_by_role("row").filter(has_text="k1").count() == 2


def test_search_is_stopped_and_says_so(records: Records) -> None:
    """The browser aborts the request, so that the node ends the search."""
    records.write("there")
    records.open()
    records.page.route("**/records/scan*", lambda route: None)  # the answer never comes
    records.page.get_by_role("button", name="Search the topic").click()
    records.page.get_by_role("button", name="Search", exact=True).click()
    with records.page.expect_event("requestfailed") as ended:
        records.page.get_by_role("button", name="Stop").click()
    assert "/records/scan" in ended.value.url
    records.page.get_by_text("Stopped. 0 records").wait_for()


def test_search_goes_on_where_it_ended(records: Records) -> None:
    """After so many found records; none is found twice."""
    for number in range(5):
        records.write(f"value-{number}")
    records.open()

    def with_a_limit(route: Any) -> None:
        route.continue_(url=route.request.url.replace("max_records=1000", "max_records=3"))

    records.page.route("**/records/scan*", with_a_limit)
    records.page.get_by_role("button", name="Search the topic").click()
    records.page.get_by_role("button", name="Search", exact=True).click()
    records.page.get_by_text("There may be more. 3 records").wait_for()
    records.page.get_by_role("button", name="Continue").click()
    records.page.get_by_text("Done. 5 records").wait_for()
    records.page.get_by_role("button", name="Continue").wait_for(state="hidden")


@pytest.mark.errors_expected
@pytest.mark.parametrize("where", ["replicas?most=1", "records?start*"])
def test_screen_that_had_no_answer_asks_again(records: Records, where: str) -> None:
    """A node that is busy, or does not know a new topic yet, can answer soon. The screen needs no reload."""
    refused: list[str] = []

    def refuse_once(route: Any) -> None:
        refused.append(route.request.url)
        if len(refused) > 1:
            route.continue_()
        else:
            route.fulfill(status=503, json={"error_code": 503, "message": "The node is busy."})

    records.write("there")
    records.page.route(f"**/topics/{records.name}/{where}", refuse_once)
    records.open()
    records.row("there").wait_for()
    assert len(refused) > 1
