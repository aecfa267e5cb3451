"""Kafka frames and messages ⇄ objects, every version, on kio schemas. It must not know the purpose of a request."""

from raftlog.base import import_without

# All of kio uses this module, which loads Hypothesis if it is installed: two fifths of a node's start then.
import_without("hypothesis", "kio.static._phantom")
