"""`raftlog schema …`: the subjects of the schema registry, their versions, and whether a schema may follow them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

import typer

from raftlog.cli import exits
from raftlog.cli.cluster_command import not_empty, noun
from raftlog.cli.exits import Failure
from raftlog.cli.http_api import SCHEMA_REGISTRY, HttpApi
from raftlog.cli.http_command import http_verb
from raftlog.cli.printable import printable
from raftlog.cli.rows import Form, print_object, print_rows

schema = noun("List, show, register, check and delete the schemas of the registry.")

KINDS: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
"""Types of schemas by the endings of their files."""

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", callback=not_empty)]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="the schema: .avsc, .json or .proto; - is standard input")
]
Type = Annotated[
    str, typer.Option("--type", metavar="TYPE", help="avro, json or protobuf; default: by the file's ending")
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference", metavar="NAME=SUBJECT:VERSION", help="a schema that it refers to; may be repeated"
    ),
]
VersionOption = Annotated[
    str, typer.Option("--version", metavar="N", help="a version, or latest", show_default=False)
]


@http_verb(schema, "list", prints_rows=True, service=SCHEMA_REGISTRY)
def list_schemas(
    api: HttpApi,
    *,
    prefix: Annotated[str, typer.Option("--prefix", help="only subjects that begin so")] = "",
    deleted: Annotated[bool, typer.Option("--deleted", help="soft-deleted schemas as well")] = False,
    form: Form,
) -> None:
    """List the latest version of each subject."""
    query = urlencode({"subjectPrefix": prefix, "deleted": _flag(deleted), "latestOnly": "true"})
    rows = [
        {
            "subject": each["subject"],
            "version": each["version"],
            "id": each["id"],
            "type": each.get("schemaType", "AVRO").lower(),
            "deleted": each.get("deleted", False),
        }
        for each in api.ask("GET", f"/schemas?{query}")
    ]
    columns = ("subject", "version", "id", "type", *(("deleted",) if deleted else ()))
    print_rows(rows, form, columns)


@http_verb(schema, "get", prints_rows=True, service=SCHEMA_REGISTRY)
def get(
    api: HttpApi,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT|ID", callback=not_empty)],
    *,
    version: VersionOption = "latest",
    form: Form,
) -> None:
    """Show a version of a subject, or the schema of an id: what it is, and then its text."""
    if subject.isascii() and subject.isdigit():
        found = {"id": int(subject), **api.ask("GET", f"/schemas/ids/{subject}")}
    else:
        found = api.ask("GET", f"{_at(subject)}/versions/{quote(version, safe='')}")
    if form is not Form.TABLE:
        print_object(found, form)
        return
    text = found.pop("schema")
    about = {
        **{name: found[name] for name in ("subject", "version", "id") if name in found},
        "type": found.get("schemaType", "AVRO").lower(),
        "guid": found.get("guid"),
        "references": [
            f"{each['name']}={each['subject']}:{each['version']}" for each in found.get("references", ())
        ],
    }
    print_object({name: value for name, value in about.items() if value not in (None, [])}, form)
    print()
    print(*(printable(line.expandtabs(4)) for line in _indented(text).split("\n")), sep="\n")


@http_verb(schema, "versions", prints_rows=True, service=SCHEMA_REGISTRY)
def versions(api: HttpApi, subject: Subject, *, form: Form) -> None:
    """List the versions of a subject with their ids."""
    numbers = api.ask("GET", f"{_at(subject)}/versions")
    rows = []
    for number in numbers:
        found = api.ask("GET", f"{_at(subject)}/versions/{number}")
        rows.append({"version": number, "id": found["id"], "guid": found["guid"]})
    print_rows(rows, form, ("version", "id", "guid"))


@http_verb(schema, "register", prints_rows=True, service=SCHEMA_REGISTRY)
def register(
    api: HttpApi,
    subject: Subject,
    path: File,
    *,
    kind: Type = "",
    references: References = None,
    form: Form,
) -> None:
    """Register a schema as the next version of a subject. The same schema again is the version that it was."""
    found = api.ask("POST", f"{_at(subject)}/versions", _body(path, kind, references or []))
    print_object({"subject": subject, "version": found["version"], "id": found["id"]}, form)


@http_verb(schema, "check", service=SCHEMA_REGISTRY)
def check(
    api: HttpApi,
    subject: Subject,
    path: File,
    *,
    kind: Type = "",
    references: References = None,
    version: VersionOption = "",
) -> int:
    """Check whether a schema may follow the versions of a subject, without registering it. Exits 1 if it may not."""
    at = f"/compatibility{_at(subject)}/versions"
    if version:
        at += f"/{quote(version, safe='')}"
    found = api.ask("POST", f"{at}?verbose=true", _body(path, kind, references or []))
    if found["is_compatible"]:
        print(f"{subject}: compatible")
        return exits.OK
    for message in found.get("messages") or ["incompatible"]:
        print(f"raftlog: {printable(subject)}: {printable(message)}", file=sys.stderr)
    return exits.FAILED


@http_verb(schema, "delete", service=SCHEMA_REGISTRY)
def delete(
    api: HttpApi,
    subject: Subject,
    *,
    version: VersionOption = "",
    permanent: Annotated[
        bool, typer.Option("--permanent", help="for good, after a deletion without this option")
    ] = False,
) -> None:
    """Delete a subject, or one version. Its ids stay readable until it is deleted with --permanent too."""
    at = _at(subject) + (f"/versions/{quote(version, safe='')}" if version else "")
    found = api.ask("DELETE", f"{at}?permanent={_flag(permanent)}")
    numbers = found if isinstance(found, list) else [found]
    how = "deleted permanently" if permanent else "deleted"
    print(f"{subject} {', '.join(f'version {each}' for each in numbers)} {how}")


@http_verb(schema, "compatibility", service=SCHEMA_REGISTRY)
def compatibility(
    api: HttpApi,
    subject: Annotated[str, typer.Argument(metavar="[SUBJECT]")] = "",
    *,
    level: Annotated[str, typer.Option("--set", metavar="LEVEL", help="such as FULL_TRANSITIVE")] = "",
    reset: Annotated[bool, typer.Option("--reset", help="back to the level of all")] = False,
) -> None:
    """Show the compatibility level of a subject, or of all subjects without their own; or set it."""
    if level and reset:
        raise Failure("say --set or --reset", exits.USAGE)
    at = f"/config/{quote(subject, safe='')}" if subject else "/config"
    if level:
        api.ask("PUT", at, {"compatibility": level.upper()})
    if reset:
        api.ask("DELETE", at)
    print(api.ask("GET", f"{at}?defaultToGlobal=true")["compatibilityLevel"])


def _at(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _body(path: Path, kind: str, references: list[str]) -> dict[str, Any]:
    found = kind.upper() or KINDS.get(path.suffix, "")
    if found not in KINDS.values():
        raise Failure(
            "--type: must be avro, json or protobuf, where the file's ending does not say it", exits.USAGE
        )
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Failure(f"{path}: {reason}", exits.USAGE) from None
    return {"schema": text, "schemaType": found, "references": [_reference(each) for each in references]}


def _reference(given: str) -> dict[str, Any]:
    name, _, place = given.rpartition("=")
    subject, _, version = place.rpartition(":")
    if not (name and subject and version.isascii() and version.isdigit()):
        raise Failure(f"--reference {given}: expected NAME=SUBJECT:VERSION", exits.USAGE)
    return {"name": name, "subject": subject, "version": int(version)}


def _indented(text: str) -> str:
    """Return a schema for people to read: JSON with indentation, anything else as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text
