"""The files of a Protobuf schema as descriptors of Google's package, which takes no .proto texts by itself."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from raftlog.schemas.errors import invalid_schema
from raftlog.schemas.proto_descriptors import descriptor_of
from raftlog.schemas.protobuf_schemas import syntax_tree
from raftlog.schemas.schema import Named

OWN_NAME: Final = "raftlog/value.proto"
"""The name of the schema's own file in its pool; references have the names by which they are imported."""
GOOGLES: Final = re.compile(r"google/(protobuf|type)/[a-z_]+\.proto")
_SCALARS: Final = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}


class ProtoFile:
    """A file with its types resolved, and all that it imports."""

    def __init__(self, file: FileDescriptorProto, pool: DescriptorPool) -> None:
        self._package, self._pool = file.package, pool
        self.messages: Sequence[DescriptorProto] = file.message_type
        """The outermost messages, in the file's order."""

    def find(self, name: str) -> Descriptor:
        """Return a message by its name within the file's package."""
        return self._pool.FindMessageTypeByName(f"{self._package}.{name}".lstrip("."))

    def descriptor(self) -> bytes:
        """Return the file as Protobuf, with the full names of its types."""
        found = FileDescriptorProto()
        self._pool.FindFileByName(OWN_NAME).CopyToProto(found)
        return bytes(found.SerializeToString())


@lru_cache(maxsize=20)
def serialized(text: str, references: tuple[Named, ...]) -> str:
    """Return a .proto text as a descriptor in base64, without options. Raise SchemaError."""
    try:
        return base64.b64encode(load_file(text, references).descriptor()).decode()
    except (TypeError, ValueError, KeyError, DecodeError) as error:
        raise invalid_schema(f"it has no descriptor: {error}") from None


def load_file(text: str, references: Sequence[Named]) -> ProtoFile:
    """Return the file of a schema. Raise SchemaError, TypeError, ValueError, KeyError, DecodeError."""
    pool = DescriptorPool()
    added: set[str] = set()
    for each in references:
        _add(pool, _file(each.name, each.text), added)
    file = _file(OWN_NAME, text)
    _add(pool, file, added)
    return ProtoFile(file, pool)


def _file(name: str, text: str) -> FileDescriptorProto:
    descriptor = descriptor_of(text)
    found = _file_of_text(text) if descriptor is None else FileDescriptorProto.FromString(descriptor)
    found.name = name
    return found


def _add(pool: DescriptorPool, file: FileDescriptorProto, added: set[str]) -> None:
    """Add a file after Google's files that it imports. Other files that are not there define options only."""
    for name in file.dependency:
        if name not in added and GOOGLES.fullmatch(name):
            _add_googles(pool, name, added)
    public = {file.dependency[number] for number in file.public_dependency}
    known = [name for name in file.dependency if name in added]
    del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
    file.dependency.extend(known)
    file.public_dependency.extend(number for number, name in enumerate(known) if name in public)
    pool.AddSerializedFile(file.SerializeToString())
    added.add(file.name)


def _add_googles(pool: DescriptorPool, name: str, added: set[str]) -> None:
    try:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        return
    _add(pool, FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb), added)


def _file_of_text(text: str) -> FileDescriptorProto:
    """Return the descriptor of a .proto text, without options."""
    tree = syntax_tree(text)
    if tree.edition:
        raise ValueError("editions are not read, only proto2 and proto3")
    file = FileDescriptorProto(syntax=tree.syntax or "proto2")
    for each in tree.file_elements:
        match type(each).__name__:
            case "Package":
                file.package = each.name
            case "Import":
                file.dependency.append(each.name)
                if each.public:
                    file.public_dependency.append(len(file.dependency) - 1)
            case "Message":
                _Builder(file.message_type.add(name=each.name), file.syntax).build(each.elements)
            case "Enum":
                _build_enum(file.enum_type.add(name=each.name), each)
    return file


def _build_enum(enum: Any, tree: Any) -> None:
    for each in tree.elements:
        match type(each).__name__:
            case "EnumValue":
                enum.value.add(name=each.name, number=each.number)
            case "Option" if each.name == "allow_alias":
                enum.options.allow_alias = bool(each.value)


class _Builder:
    """Fills the descriptor of a message from its syntax tree."""

    def __init__(self, message: DescriptorProto, syntax: str) -> None:
        self._message, self._syntax = message, syntax
        self._optional: list[FieldDescriptorProto] = []

    def build(self, elements: Sequence[Any]) -> None:
        self._add(elements, None)
        for field in self._optional:  # their oneofs come last
            field.oneof_index = len(self._message.oneof_decl)
            self._message.oneof_decl.add(name=f"_{field.name}")

    def _add(self, elements: Sequence[Any], oneof: int | None) -> None:
        for each in elements:
            add: Callable[[Any, int | None], None] | None = {
                "Field": self._add_field,
                "MapField": self._add_map,
                "Group": self._add_group,
                "OneOf": self._add_oneof,
                "Message": self._add_message,
                "Enum": self._add_enum,
            }.get(type(each).__name__)
            if add is not None:
                add(each, oneof)

    def _add_oneof(self, tree: Any, _: int | None) -> None:
        self._message.oneof_decl.add(name=tree.name)
        self._add(tree.elements, len(self._message.oneof_decl) - 1)

    def _add_message(self, tree: Any, _: int | None) -> None:
        _Builder(self._message.nested_type.add(name=tree.name), self._syntax).build(tree.elements)

    def _add_enum(self, tree: Any, _: int | None) -> None:
        _build_enum(self._message.enum_type.add(name=tree.name), tree)

    def _add_field(self, tree: Any, oneof: int | None) -> None:
        field = self._new(self._message, tree.name, tree.number, tree.type)
        cardinality = tree.cardinality.value if tree.cardinality else "OPTIONAL"
        field.label = FieldDescriptorProto.Label.Value(f"LABEL_{cardinality}")
        if oneof is not None:
            field.oneof_index = oneof
        elif tree.cardinality and cardinality == "OPTIONAL" and self._syntax == "proto3":
            field.proto3_optional = True
            self._optional.append(field)

    def _add_map(self, tree: Any, _: int | None) -> None:
        name = "".join(word[:1].upper() + word[1:] for word in tree.name.split("_")) + "Entry"
        entry = self._message.nested_type.add(name=name)
        entry.options.map_entry = True
        self._new(entry, "key", 1, tree.key_type)
        self._new(entry, "value", 2, tree.value_type)
        field = self._new(self._message, tree.name, tree.number, name)
        field.label = FieldDescriptorProto.LABEL_REPEATED
        field.type = FieldDescriptorProto.TYPE_MESSAGE

    def _add_group(self, tree: Any, oneof: int | None) -> None:
        self._add_message(tree, None)
        tree.type = tree.name
        name, tree.name = tree.name, tree.name.lower()
        self._add_field(tree, oneof)
        self._message.field[-1].type = FieldDescriptorProto.TYPE_GROUP
        assert self._message.field[-1].type_name == name

    @staticmethod
    def _new(message: DescriptorProto, name: str, number: int, kind: str) -> FieldDescriptorProto:
        field = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type_name = kind  # a message or an enum, which the package finds out
        return field
