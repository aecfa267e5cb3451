"""Protobuf: schemas as .proto texts, or as descriptors in base64, which Python's serializers register.

Messages are compared by their fields' numbers: types, labels and oneofs. A field has another name at no cost, since
names are not on the wire. `proto-schema-parser` parses texts, in about 25 µs for each character: so they have a smaller
limit than other schemas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from raftlog.schemas.errors import SchemaError, invalid_schema, too_large
from raftlog.schemas.proto_descriptors import decode_descriptor, descriptor_of
from raftlog.schemas.proto_model import Field, Message, ProtoFile, name_within
from raftlog.schemas.schema import MAX_DEPTH, MAX_PARTS, TEXT_MAX_CHARS, Named

PROTO_MAX_CHARS: Final = 64 * 1024
"""Of a text; a descriptor may have as many characters as other schemas."""
_TOKEN: Final = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?|[\w.]+|[^\s\w]""", re.DOTALL
)
"""Each token begins where the last ended, also a string or a comment without an end: no character is read twice."""
MOST_MESSAGES: Final = 20
WIRE_GROUPS: Final = (
    frozenset({"int32", "uint32", "int64", "uint64", "bool"}),
    frozenset({"sint32", "sint64"}),
    frozenset({"fixed32", "sfixed32"}),
    frozenset({"fixed64", "sfixed64"}),
    frozenset({"string", "bytes"}),
)
"""Types that read each other's bytes."""


def stored_text(text: str) -> str:
    """Return the text as it is: people read it."""
    _check_size(text)
    return text


def canonical(text: str) -> str:
    """Return a text without comments and layout, and a descriptor as it is. Raises SchemaError."""
    _check_size(text)
    if descriptor_of(text) is not None:
        return text.strip()
    return " ".join(_tokens(text))


def _tokens(text: str) -> Iterator[str]:
    return (each for each in _TOKEN.findall(text) if not each.startswith(("//", "/*")))


def _check_size(text: str) -> None:
    most = TEXT_MAX_CHARS if descriptor_of(text) is not None else PROTO_MAX_CHARS
    if len(text) > most:
        raise too_large(f"it has {len(text)} characters, of at most {most}")


def parse(text: str, named: Sequence[Named]) -> ProtoFile:
    """Return the parsed file; the files that it imports are checked for their names only. Raises SchemaError."""
    _check_size(text)
    descriptor = descriptor_of(text)
    found = _parse_text(text) if descriptor is None else decode_descriptor(descriptor)
    known = {each.name for each in named}
    for path in found.imports:
        if path not in known and not path.startswith(("google/protobuf/", "google/type/", "confluent/")):
            raise invalid_schema(f"it imports {path[:200]!r}, which no reference of the request is called")
    _check_numbers(found)
    return found


def _check_numbers(found: ProtoFile) -> None:
    parts = sum(len(each.fields) + 1 for each in found.messages.values())
    if parts > MAX_PARTS:
        raise too_large(f"it has more than {MAX_PARTS} parts")
    for message in found.messages.values():
        numbers = [each.number for each in message.fields]
        if len(set(numbers)) < len(numbers) or any(not 0 < each < 1 << 29 for each in numbers):
            raise invalid_schema(
                f"the numbers of the fields of {message.name} are not different and positive"
            )


def syntax_tree(text: str) -> Any:
    """Return the tree of the package `proto-schema-parser` for a text within the limits. Raises SchemaError."""
    _check_size(text)
    return _parsed(text, lambda tree: tree)


def _parse_text(text: str) -> ProtoFile:
    found: ProtoFile = _parsed(text, lambda tree: _Reader(tree).file())
    return found


def _parsed(text: str, read: Callable[[Any], Any]) -> Any:
    """Return what `read` makes of the syntax tree of a text. Raises SchemaError."""
    from proto_schema_parser.parser import Parser

    depth = 0
    for token in _tokens(text):
        depth += {"{": 1, "}": -1}.get(token, 0)
        if depth > MAX_DEPTH:
            raise too_large(f"its messages are nested deeper than {MAX_DEPTH}")
    try:
        return read(Parser(setup_lexer=_raise_errors, setup_parser=_raise_errors).parse(text))
    except RecursionError:
        raise too_large("it is nested too deeply") from None
    except SchemaError:
        raise
    except Exception as error:  # the package and its grammar raise many kinds
        raise invalid_schema(f"{type(error).__name__}: {str(error)[:300]}") from None


def _raise_errors(recognizer: Any) -> None:
    """Have a lexer or a parser raise its first error, instead of printing all and guessing."""
    recognizer.removeErrorListeners()
    recognizer.addErrorListener(_Errors())


class _Errors:
    """The listener of ANTLR for errors."""

    def syntaxError(  # noqa: PLR0917
        self, recognizer: Any, symbol: Any, line: int, column: int, message: str, error: Any
    ) -> None:
        """Raise ValueError."""
        raise ValueError(f"line {line}, column {column + 1}: {message}")

    def __getattr__(self, name: str) -> Any:
        """Ignore the reports about ambiguities of the grammar."""
        return lambda *_: None


class _Reader:
    """Reads the package's syntax tree."""

    def __init__(self, parsed: Any) -> None:
        self._parsed = parsed
        self._messages: dict[str, Message] = {}
        self._enums: dict[str, dict[int, str]] = {}

    def file(self) -> ProtoFile:
        """Return the file, with the names of types resolved as far as they are in it."""
        package, imports = "", []
        for each in self._parsed.file_elements:
            kind = type(each).__name__
            if kind == "Package":
                package = each.name
            elif kind == "Import":
                imports.append(each.name)
            else:
                self._take(each, "")
        if not self._messages and not self._enums:
            raise ValueError("it has neither messages nor enums")
        named = {*self._messages, *self._enums}
        messages = {
            name: each._replace(
                fields=tuple(
                    one._replace(type=_resolved(one.type, name, named, package)) for one in each.fields
                )
            )
            for name, each in self._messages.items()
        }
        return ProtoFile(package, tuple(imports), messages, self._enums, tuple(messages))

    def _take(self, element: Any, scope: str) -> None:
        kind = type(element).__name__
        if kind == "Message":
            name = name_within(scope, element.name)
            self._messages[name] = Message(name, tuple(self._fields(element.elements, "")))
            for each in element.elements:
                self._take(each, name)
        elif kind == "Enum":
            name = name_within(scope, element.name)
            values = [each for each in element.elements if type(each).__name__ == "EnumValue"]
            self._enums[name] = {each.number: each.name for each in values}

    def _fields(self, elements: Sequence[Any], oneof: str) -> Iterator[Field]:
        for each in elements:
            kind = type(each).__name__
            if kind == "Field":
                label = each.cardinality.value.lower() if each.cardinality else ""
                yield Field(each.number, each.name, label, each.type, oneof)
            elif kind == "MapField":
                yield Field(each.number, each.name, "repeated", f"map<{each.key_type},{each.value_type}>", "")
            elif kind == "OneOf":
                yield from self._fields(each.elements, each.name)


def _resolved(kind: str, scope: str, named: set[str], package: str) -> str:
    """Return the name of a type relative to the file's package, found from the innermost scope on."""
    if kind.startswith("map<"):
        key, _, value = kind[4:-1].partition(",")
        return f"map<{key},{_resolved(value, scope, named, package)}>"
    name = kind.lstrip(".")
    if package and name.startswith(f"{package}."):
        name = name[len(package) + 1 :]
        scope = ""
    while scope:
        if f"{scope}.{name}" in named:
            return f"{scope}.{name}"
        scope = scope.rpartition(".")[0]
    return name


def incompatibilities(reader: ProtoFile, writer: ProtoFile) -> list[str]:
    """Return why `reader` cannot read all records of `writer`; empty if it can."""
    return list(islice(_compared(reader, writer), MOST_MESSAGES))


def _compared(reader: ProtoFile, writer: ProtoFile) -> Iterator[str]:
    for name, theirs in writer.messages.items():
        mine = reader.messages.get(name)
        if mine is None:
            yield _message("MESSAGE_REMOVED", name, "the message is gone")
            continue
        yield from _compared_fields(reader, writer, mine, theirs)


def _compared_fields(reader: ProtoFile, writer: ProtoFile, mine: Message, theirs: Message) -> Iterator[str]:
    written = {each.number: each for each in theirs.fields}
    read = {each.number: each for each in mine.fields}
    for number, field in read.items():
        before = written.get(number)
        where = f"{mine.name}.{field.name}"
        if field.label == "required" and (before is None or before.label != "required"):
            yield _message("REQUIRED_FIELD_ADDED", where, "records need not have the field")
        if before is not None:
            yield from _compared_types(reader, writer, field, before, where)
    for number, field in written.items():
        if field.oneof and number not in read:
            yield _message("ONEOF_FIELD_REMOVED", f"{mine.name}.{field.name}", f"of the oneof {field.oneof}")
    yield from _compared_oneofs(mine, written)


def _compared_types(
    reader: ProtoFile, writer: ProtoFile, mine: Field, theirs: Field, where: str
) -> Iterator[str]:
    one, other = _wire_type(reader, mine.type), _wire_type(writer, theirs.type)
    is_same = one == other or any({one, other} <= group for group in WIRE_GROUPS)
    if not is_same:
        yield _message("FIELD_KIND_CHANGED", where, f"its type was {theirs.type}, and is {mine.type}")
    if (mine.label == "repeated") != (theirs.label == "repeated") and not mine.type.startswith("map<"):
        is_number = any(one in group for group in WIRE_GROUPS[:4]) or one in ("float", "double")
        if is_number:
            yield _message("FIELD_NUMERIC_LABEL_CHANGED", where, "a repeated number is packed")


def _wire_type(file: ProtoFile, kind: str) -> str:
    """Return a type by which its bytes are compared: an enum is a number."""
    return "int32" if kind in file.enums else kind


def _compared_oneofs(mine: Message, written: dict[int, Field]) -> Iterator[str]:
    """Yield each oneof that takes several fields which records may have together."""
    taken: dict[str, list[Field]] = {}
    kept: set[str] = set()  # oneofs with a field that was in them before
    for each in mine.fields:
        before = written.get(each.number)
        if each.oneof and before is not None:
            if before.oneof == each.oneof:
                kept.add(each.oneof)
            else:
                taken.setdefault(each.oneof, []).append(each)
    for name, fields in taken.items():
        if len(fields) > 1 or name in kept:
            names = ", ".join(each.name for each in fields[:MOST_MESSAGES])
            yield _message("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{mine.name}.{name}", names)


def _message(kind: str, where: str, detail: str) -> str:
    return f"{{errorType:'{kind}', description:'at {where}', additionalInfo:'{detail}'}}"
