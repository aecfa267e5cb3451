"""The kinds of schemas with values that can be read as columns."""

from __future__ import annotations

from typing import Final

from raftlog.tables.avro_values import AvroReader
from raftlog.tables.proto_values import ProtobufReader
from raftlog.tables.values import Kinds

KINDS: Final[Kinds] = {"AVRO": AvroReader, "PROTOBUF": ProtobufReader}
