"""`raftlog schema …`: the subjects of the schema registry, their versions, and whether a schema may follow them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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

FAULT: Final = re.compile(
    r"\{errorType:'(\w+)', description:'(.*?)(?: \(field ([\w.]+)\))?', additionalInfo:'(.*?)'\}",
    re.DOTALL,
)
"""A fault in a message of a registry: kind, place, name of the field, and what is wrong there."""
TYPES: Final = re.compile(r"reader type: (.*) not compatible with writer type: (.*)")
LEVEL: Final = re.compile(r"\(compatibility (\w+)\)")
SET_PERMANENT: Final = re.compile(r"[;.] ?set permanent=true.*", re.IGNORECASE | re.DOTALL)
"""The end of a registry's refusal to soft-delete again, which names the parameter of its API."""
MOST_VERSIONS: Final = 10
"""Versions that an error names."""

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
        with _explained(api, subject, version):
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
        rows.append({"subject": subject, "version": number, "id": found["id"], "guid": found["guid"]})
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
    body = _body(path, kind, references or [])
    with _explained(api, subject, path=path):
        found = api.ask("POST", f"{_at(subject)}/versions", body)
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
    new: Annotated[bool, typer.Option("--new", help="the subject may be without versions")] = False,
) -> int:
    """Check whether a schema may follow the versions of a subject, without registering it.

    Exits 1 if it may not, and 3 if the subject has no versions: it may be misspelled.
    """
    at = f"/compatibility{_at(subject)}/versions"
    if version:
        at += f"/{quote(version, safe='')}"
    body = _body(path, kind, references or [])
    with _explained(api, subject, version, path):
        found = api.ask("POST", f"{at}?verbose=true", body)
    if not found["is_compatible"]:
        raise _incompatible(subject, path, "; ".join(found.get("messages") or ()))
    if version or _versions_of(api, subject):
        print(f"{subject}: compatible")
        return exits.OK
    first = f"{subject} has no versions, so any schema may be its first"
    if not new:
        raise Failure(f"{first}; if it is new, say --new", exits.NOT_FOUND)
    print(first)
    return exits.OK


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
    with _explained(api, subject, version):
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


@contextmanager
def _explained(api: HttpApi, subject: str, version: str = "", path: Path | None = None) -> Iterator[None]:
    """Raise the failures of a request about a version, or a schema in a file, as failures that name them."""
    try:
        yield
    except Failure as failure:
        if failure.code == exits.EXISTS and path is not None:  # 409, its only meaning
            raise _incompatible(subject, path, str(failure)) from None
        if failure.code == exits.FAILED and path is not None:
            raise Failure(f"{path}: {failure}", failure.code) from None
        if SET_PERMANENT.search(str(failure)):
            said = SET_PERMANENT.sub("; --permanent deletes it permanently", str(failure))
            raise Failure(said, failure.code) from None
        there = _versions_of(api, subject) if failure.code == exits.NOT_FOUND and version else []
        if not there:
            raise
        known = f"{', '.join(map(str, there[-MOST_VERSIONS:]))}"
        these = f"its newest versions are {known}" if len(there) > MOST_VERSIONS else f"it has {known}"
        raise Failure(f"subject {subject} has no version {version}: {these}", exits.NOT_FOUND) from None


def _versions_of(api: HttpApi, subject: str) -> list[int]:
    """Return the versions of a subject, none if there is no such subject. Raise Failure."""
    try:
        found: list[int] = api.ask("GET", f"{_at(subject)}/versions")
    except Failure as failure:
        if failure.code != exits.NOT_FOUND:
            raise
        return []
    return found


def _incompatible(subject: str, path: Path, said: str) -> Failure:
    """Return the failure for an incompatible schema, with a line for each fault in what a registry said."""
    faults = list(dict.fromkeys(_line_of(*found) for found in FAULT.findall(said)))
    level = LEVEL.search(said)
    where = f"{path} is incompatible with an earlier version of {subject}"
    where += f" (compatibility {level[1]})" if level else ""
    return Failure(
        where if faults or not said else f"{where}: {said}", details=[f"  {each}" for each in faults]
    )


def _line_of(kind: str, where: str, field: str, detail: str) -> str:
    """Return a fault of a registry's message as a line for people."""
    if not where.startswith("at "):  # Confluent's registry has a sentence there
        return f"{where}: {detail}"
    place = f"field {field}" if field else where.removeprefix("at ")
    if kind == "READER_FIELD_MISSING_DEFAULT_VALUE":
        return f"{place}: one schema has it, without a default, and the other lacks it"
    if kind == "TYPE_MISMATCH" and (types := TYPES.fullmatch(detail)):
        return f"{place}: {types[2]} cannot be read as {types[1]}"
    return f"{place}: {kind.replace('_', ' ').lower()}: {detail}"


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
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}", exits.USAGE) from None
    except UnicodeDecodeError as error:
        raise Failure(f"{path}: it is not text: byte {error.start} does not fit UTF-8", exits.USAGE) from None
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
