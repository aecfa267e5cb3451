"""Environment variables that are no settings of a node: the command line, Spark or test clusters read them.

They have the prefix of the variables for settings, so a node leaves them out when it warns of unknown variables.
"""

from __future__ import annotations

from typing import Final

CONFIG: Final = "RAFTLOG_CONFIG"
"""A node's config file."""
BOOTSTRAP: Final = "RAFTLOG_BOOTSTRAP"
HTTP: Final = "RAFTLOG_HTTP"
"""The URL of a node's HTTP API."""
REGISTRY: Final = "RAFTLOG_REGISTRY"
"""The URL of a schema registry."""
CONTEXT: Final = "RAFTLOG_CONTEXT"
TOKEN: Final = "RAFTLOG_TOKEN"  # noqa: S105 - the name of a variable
HTTP_USER: Final = "RAFTLOG_HTTP_USER"
HTTP_CACERT: Final = "RAFTLOG_HTTP_CACERT"
HTTP_CERT: Final = "RAFTLOG_HTTP_CERT"
JARS: Final = "RAFTLOG_JARS"
"""Maven's local repository, for Spark's Kafka connector."""
SPARK_ALLOW: Final = "RAFTLOG_SPARK_ALLOW"
"""Names of settings, separated by commas, that Spark queries may choose all the same."""
PATIENCE: Final = "RAFTLOG_PATIENCE"
"""A factor for all waits of tests."""

NOT_SETTINGS: Final = frozenset(
    {
        CONFIG,
        BOOTSTRAP,
        HTTP,
        REGISTRY,
        CONTEXT,
        TOKEN,
        HTTP_USER,
        HTTP_CACERT,
        HTTP_CERT,
        JARS,
        SPARK_ALLOW,
        PATIENCE,
    }
)
"""All of the above."""
