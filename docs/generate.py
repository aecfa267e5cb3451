"""Write the reference pages from the tables that the code runs on: settings, commands, routes of the HTTP API, metrics.

`make docs` runs it before it builds the site. The pages are not committed, so they cannot be out of date. Only the page
about what differs from Kafka is, and a test compares it.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from raftlog.admin.openapi import document
from raftlog.admin.resources import ROUTES
from raftlog.base.config import GroupConfig, NodeConfig, Setting, TopicConfig, settings_of
from raftlog.base.config.kafka import KAFKA_SETTINGS
from raftlog.base.config.setting import INT_MAX, LONG_MAX
from raftlog.cli import exits
from raftlog.cli.commands import COMMANDS
from raftlog.cli.tree import load
from raftlog_chaos.conformance import known
from raftlog_chaos.conformance import page as differences

EXPLANATION = Path(__file__).parent / "pages" / "explanation"
REFERENCE = Path(__file__).parent / "pages" / "reference"
HELP_COLUMNS = 80
JSON_METHODS = ("get", "post", "put", "patch", "delete")
Lines = Iterator[str]


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Lines:
    """Yield a Markdown table; a bar in a cell is escaped."""
    names = list(columns)
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
    yield ""


def code(text: object) -> str:
    """Return inline code, or nothing for an empty text."""
    return f"`{text}`" if text not in ("", None) else ""


# Configuration


def configuration() -> Lines:
    """Yield the page of all settings."""
    yield "# Configuration"
    yield ""
    yield "Names are Kafka's dotted names. [How a node is configured](../howto/machines.md#configuration) tells where"
    yield "values come from. A *dynamic* setting can change at run time; the others need a restart."
    yield ""
    node = [row for _, row in settings_of(NodeConfig).values()]
    for title, scope in (
        ("Settings of a node", "node"),
        ("Settings of a broker", "broker"),
        ("Settings of a controller", "controller"),
    ):
        yield from _settings(title, [row for row in node if row.scope == scope])
    yield from _settings("Settings of a topic", [row for _, row in settings_of(TopicConfig).values()])
    yield from _settings("Settings of a group", [row for _, row in settings_of(GroupConfig).values()])
    yield "## Apache Kafka's settings that raftlog lacks"
    yield ""
    yield "A node accepts the first kind without effect and warns about it. A running broker refuses a change of the"
    yield "second kind. A node that is given one of the third kind does not start."
    yield ""
    rows = [(code(name), each.treatment, each.why) for name, each in sorted(KAFKA_SETTINGS.items())]
    yield from table(("setting", "treatment", "why"), rows)


def _settings(title: str, rows: Iterable[Setting]) -> Lines:
    yield f"## {title}"
    yield ""
    cells = (
        (f'<code class="setting">{row.name}</code><br>{_kind(row)}', row.meaning)
        for row in sorted(rows, key=lambda row: row.name)
    )
    yield from table(("setting", "meaning"), cells)


def _kind(row: Setting) -> str:
    """Return the kind and unit of a setting, whether it can change at run time, and its default."""
    words = ", ".join(each for each in (row.kind, row.unit, "" if row.read_only else "dynamic") if each)
    default = code(_default(row))
    return f"{words}; default {default}" if default else words


def _default(row: Setting) -> str:
    return "unlimited" if row.default in (INT_MAX, LONG_MAX) else row.format(row.default) or ""


# The command line


def commands() -> Lines:
    """Yield the page that lists all commands and the exit codes."""
    yield "# Command line"
    yield ""
    for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
        yield f"## {section}"
        yield ""
        yield from table(
            ("command", "what it does"),
            (
                (f"[`raftlog {name}`](cli/{name}.md)", entry.help)
                for name, entry in COMMANDS.items()
                if entry.section == section
            ),
        )
    yield "## Exit codes"
    yield ""
    yield from table(("code", "meaning"), ((str(number), meaning) for number, meaning in exits.TABLE))


def command_page(name: str) -> Lines:
    """Yield the page of a command at the root and of the commands below it, each with its own help."""
    yield from _command(f"raftlog {name}", load(COMMANDS[name], name), depth=1)


def _command(name: str, command: Any, *, depth: int) -> Lines:
    context = typer.Context(
        command, info_name=name, terminal_width=HELP_COLUMNS, max_content_width=HELP_COLUMNS
    )
    yield f"{'#' * depth} {name}"
    yield ""
    yield "```text"
    yield command.get_help(context)
    yield "```"
    yield ""
    for child, each in getattr(command, "commands", {}).items():
        yield from _command(f"{name} {child}", each, depth=depth + 1)


# The HTTP API


def http_api() -> Lines:
    """Yield the page of all routes, made from the document that nodes serve at /openapi.json."""
    found = document(ROUTES)
    schemas = found["components"]["schemas"]
    roles = {(route.method.lower(), route.template): route.needs for route in ROUTES}
    yield "# HTTP API"
    yield ""
    yield "Every node serves this, and describes it at `/openapi.json`; the same document is"
    yield "[here](openapi.json). [How to use it](../howto/http.md) tells about tokens, errors and pages."
    yield ""
    operations = [
        (path, method, of_path[method])
        for path, of_path in found["paths"].items()
        for method in JSON_METHODS
        if method in of_path
    ]
    rows = (
        (f"[`{method.upper()} {path}`](#{each['operationId']})", roles[method, path], each["summary"])
        for path, method, each in operations
    )
    yield from table(("request", "needs", "what it does"), rows)
    for path, method, each in operations:
        yield f"## {method.upper()} {path} {{ #{each['operationId']} }}"
        yield ""
        yield f"{each['summary'].rstrip('.?')}. Needs the role: {roles[method, path]}."
        yield ""
        yield from _operation(each, schemas)


def _operation(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Lines:
    if operation["parameters"]:
        yield from table(
            ("parameter", "in", "type", ""),
            (
                (code(each["name"]), each["in"], _type(each["schema"], schemas), _notes(each))
                for each in operation["parameters"]
            ),
        )
    if "requestBody" in operation:
        yield from _body("Body", operation["requestBody"]["content"], schemas)
    for status, answer in operation["responses"].items():
        if status < "300" and "content" in answer:
            yield from _body(f"Answer {status}", answer["content"], schemas)


def _notes(parameter: Mapping[str, Any]) -> str:
    schema = parameter["schema"]
    notes = ["required"] if parameter["required"] and parameter["in"] == "query" else []
    if "default" in schema and schema["default"] is not None:
        notes.append(f"default `{json.dumps(schema['default'])}`")
    return ", ".join(notes)


def _body(title: str, content: Mapping[str, Any], schemas: Mapping[str, Any]) -> Lines:
    media_type, of_type = next(iter(content.items()))
    if media_type != "application/json":
        yield f"**{title}**: `{media_type}`"
        yield ""
        return
    schema = _followed(of_type["schema"], schemas)
    yield f"**{title}** {schema.get('description', '')}".rstrip()
    yield ""
    if "properties" in schema:
        required = schema.get("required", ())
        rows = (
            (code(name), _type(each, schemas), "required" if name in required else "")
            for name, each in schema["properties"].items()
        )
        yield from table(("field", "type", ""), rows)


def _followed(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a reference stands for."""
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _type(schema: Mapping[str, Any], schemas: Mapping[str, Any], *, depth: int = 0) -> str:
    """Return a type in a few words; of a nested object its fields."""
    if "anyOf" in schema:
        return " or ".join(_type(each, schemas, depth=depth) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    followed = _followed(schema, schemas)
    if followed.get("type") == "array":
        return f"list of {_type(followed.get('items', {}), schemas, depth=depth)}"
    if "properties" in followed:
        if depth:
            return "object"
        named = ", ".join(f"`{name}`" for name in followed["properties"])
        return f"object of {named}"
    return str(followed.get("type", "any"))


# Metrics


def metrics() -> Lines:
    """Yield the page of all metrics, as a node with records, a group and a transaction serves them."""
    yield "# Metrics"
    yield ""
    yield "Every node serves these at `/metrics`. [Monitoring](../howto/monitoring.md) tells which to watch."
    yield "Metrics that clients pushed (KIP-714, `kafka_client_*`) come beside them, under the clients' own names."
    yield ""
    text = _scrape()
    labels: dict[str, list[str]] = {}
    for name, inside in re.findall(r"^(\w+?)(?:_bucket|_sum|_count)?\{(.*)\} ", text, re.MULTILINE):
        found = labels.setdefault(name, [])
        found.extend(each for each in re.findall(r'(\w+)="', inside) if each not in found and each != "le")
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    rows = re.findall(r"^# HELP (\w+) (.*)$", text, re.MULTILINE)
    for title, belongs in (
        ("raftlog's own", lambda name: name.startswith("raftlog_")),
        ("Those that dashboards for Kafka query", lambda name: name.startswith("kafka_")),
        ("The process", lambda name: not name.startswith(("raftlog_", "kafka_"))),
    ):
        yield f"## {title}"
        yield ""
        cells = (
            (code(name), kinds[name], " ".join(map(code, labels.get(name, ()))), meaning)
            for name, meaning in rows
            if belongs(name)
        )
        yield from table(("metric", "type", "labels", "meaning"), cells)


def _scrape() -> str:
    """Return what a node on this machine serves once it was used a little."""
    from confluent_kafka import Consumer, Producer, ShareConsumer

    from raftlog.testing.cluster import AdminCluster

    with tempfile.TemporaryDirectory() as folder, AdminCluster(1, directory=Path(folder)) as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        producer = Producer(settings | {"transactional.id": "docs"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("docs", b"a record")
        producer.commit_transaction()
        consumer = Consumer(settings | {"group.id": "docs", "auto.offset.reset": "earliest"})
        consumer.subscribe(["docs"])
        consumer.consume(1, timeout=60)
        consumer.commit(asynchronous=False)
        worker = ShareConsumer(settings | {"group.id": "jobs"})
        worker.subscribe(["docs"])
        while not worker.poll(0.5):  # a new share group begins at the end
            producer.begin_transaction()
            producer.produce("docs", b"a job")
            producer.commit_transaction()
        with urllib.request.urlopen(f"{cluster.admin_url()}/metrics", timeout=60) as answer:
            text: str = answer.read().decode()
        consumer.close()
        worker.close()
    return text


def main() -> None:
    """Write every page."""
    for name, page in (
        ("configuration", configuration),
        ("cli", commands),
        ("http", http_api),
        ("metrics", metrics),
    ):
        (REFERENCE / f"{name}.md").write_text("\n".join(page()), encoding="utf-8")
    shutil.rmtree(REFERENCE / "cli", ignore_errors=True)
    (REFERENCE / "cli").mkdir()
    for name in COMMANDS:
        (REFERENCE / "cli" / f"{name}.md").write_text("\n".join(command_page(name)), encoding="utf-8")
    (EXPLANATION / "kafka.md").write_text(differences.page(known.load_by_subject()), encoding="utf-8")
    (REFERENCE / "openapi.json").write_text(json.dumps(document(ROUTES), indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
