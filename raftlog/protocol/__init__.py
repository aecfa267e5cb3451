"""Kafka frames and messages ⇄ objects, every version, on kio schemas. Must not know what a request is for."""

from raftlog.base import import_without

# All of kio rests on this module, which loads Hypothesis where that is installed: two fifths of a node's start there.
import_without("hypothesis", "kio.static._phantom")
