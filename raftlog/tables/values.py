"""Values as a column of the table: the type of the column, which grows with the schemas, and the values in it.

A value in Confluent's wire format begins with a zero byte and the id of its schema. A table keeps every column: a new
schema adds fields, and a field that it lacks is null. A schema that gives a field another type fits no more.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Protocol

import pyarrow as pa

from raftlog.tables.kinds import new_reader
from raftlog.tables.misfits import Misfit
from raftlog.tables.readers import Part, Reader
from raftlog.tables.registry import RegisteredSchema

PREFIX: Final = struct.Struct(">bI")
"""The zero byte, and the id of the schema."""
UNUSABLE: Final = "its schema cannot be used"
UNFIT: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow raises for values that it does not take."""


class Schemas(Protocol):
    """Schemas by their ids, such as a registry."""

    def check(self) -> None:
        """Raise RegistryFailed if they cannot be read."""

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema of an id, None if there is none. Raise RegistryFailed."""

    def forget_unknown(self) -> None:
        """Look ids up again that were not known."""


class Values:
    """Reads values by the schemas of a registry. `type` is the column's type by now, without fields at first.

    If not `grows`, only schemas with the fields of `begin` are read.
    """

    def __init__(self, registry: Schemas, *, grows: bool = True) -> None:
        self.type: pa.StructType = pa.struct([])
        self._registry, self._grows = registry, grows
        self._readers: dict[int, Reader | str] = {}
        """The reader of each schema, or why there is none."""
        self._parts: dict[Part, str] = {}
        """The types of schemas that have their columns: "", or why they have none."""

    def read(self, value: bytes) -> Any:
        """Return a value as a dict. Raise Misfit, RegistryFailed."""
        if len(value) < PREFIX.size or value[0]:
            raise Misfit("its value does not begin with the id of a schema")
        _, schema_id = PREFIX.unpack_from(value)
        part, payload = self.part(schema_id, value[PREFIX.size :])
        try:
            return part.read(payload)
        except Exception as error:
            raise _misfit("its bytes are not of its schema", error) from None

    def part(self, schema_id: int, payload: bytes) -> tuple[Part, bytes]:
        """Return the reader of a value by the bytes after its id. The column has its fields from now on.

        Raise Misfit, RegistryFailed.
        """
        found = self._readers.get(schema_id) or self._find_reader(schema_id)
        if isinstance(found, str):
            raise Misfit(found)
        try:
            part, rest = found.part(payload)
        except Exception as error:
            raise _misfit(UNUSABLE, error) from None
        if part not in self._parts:
            self._parts[part] = self._add_columns(schema_id, part)
        if reason := self._parts[part]:
            raise Misfit(reason)
        return part, rest

    def begin(self, type_: pa.DataType) -> None:
        """Take over the column that a table has. Raise Misfit if it is of bytes."""
        self.type = merged(self.type, plain(type_), "value")

    def check_registry(self) -> None:
        """Raise RegistryFailed if no schema registry is at the address."""
        self._registry.check()

    def look_again(self) -> None:
        """Ask the registry again for ids that it did not know."""
        self._registry.forget_unknown()

    def _find_reader(self, schema_id: int) -> Reader | str:
        """Return the reader of a schema, or why there is none."""
        schema = self._registry.schema(schema_id)
        if schema is None:
            return f"the registry has no schema {schema_id}"
        try:
            found: Reader | str = new_reader(schema)
        except ImportError:
            raise
        except Exception as error:
            found = f"schema {schema_id}: {_misfit(UNUSABLE, error)}"
        self._readers[schema_id] = found
        return found

    def _add_columns(self, schema_id: int, part: Part) -> str:
        """Let the column have the fields of a schema's type from now on; return "", or why it cannot."""
        try:
            found = merged(self.type, part.type, "value")
        except Misfit as misfit:
            return f"schema {schema_id}: {misfit}"
        if not self._grows and found != self.type:
            return f"schema {schema_id}: the column lacks its fields"
        self.type = found
        return ""


def _misfit(what: str, error: Exception) -> Misfit:
    """Return why a value or schema does not fit, so that no bytes of a record can end a table."""
    return error if isinstance(error, Misfit) else Misfit(f"{what}: {type(error).__name__}: {error}")


def merged(there: pa.DataType, new: pa.DataType, path: str) -> Any:
    """Return the type of a column that has the values of both types. Raise Misfit."""
    if there == new:
        return there
    if pa.types.is_struct(there) and pa.types.is_struct(new):
        return _merged_structs(there, new, path)
    if pa.types.is_list(there) and pa.types.is_list(new):
        return pa.list_(pa.field("element", merged(there.value_type, new.value_type, f"{path}.element")))
    if pa.types.is_map(there) and pa.types.is_map(new):
        return pa.map_(pa.string(), merged(there.item_type, new.item_type, f"{path}.value"))
    raise Misfit(f"{path} is {new}, and {there} in the table")


def _merged_structs(there: Any, new: Any, path: str) -> pa.StructType:
    fields = {each.name: each.type for each in there}
    spellings = {name.lower(): name for name in fields}
    for each in new:
        at = f"{path}.{each.name}"
        if (spelling := spellings.setdefault(each.name.lower(), each.name)) != each.name:
            raise Misfit(f"{at} differs from {path}.{spelling} in case only")
        fields[each.name] = merged(fields[each.name], each.type, at) if each.name in fields else each.type
    return pa.struct([pa.field(name, type_) for name, type_ in fields.items()])


def plain(type_: pa.DataType) -> pa.DataType:
    """Return a type that a table gave back in this module's own terms: fields that may be null, small strings."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(each.name, plain(each.type)) for each in type_])
    if pa.types.is_map(type_):
        return pa.map_(pa.string(), plain(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(pa.field("element", plain(type_.value_type)))
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", tz="UTC")
    return type_
