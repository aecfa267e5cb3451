"""`raftlog dev --secure` in addition: rules for its users, files of clients' settings, and how to use them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from raftlog.base.config.files import format_properties
from raftlog.base.disk import make_folders, write_file
from raftlog.cli.acl.requests import create_rules
from raftlog.cli.acl.rules import Asked, rules
from raftlog.cli.exits import Failure
from raftlog.cli.target import Target
from raftlog.security.acls import WILDCARD
from raftlog.testing.secure_cluster import ADMIN, SecureCluster

WRITER: Final = "writer"
READER: Final = "reader"
NATIVE: Final = "librdkafka (before 2.6.1, as with Debian 12's kcat: sasl.mechanism=PLAIN)"
MAY: Final = {
    ADMIN: "may do everything",
    WRITER: "may create topics and write to them",
    READER: "may read topics, in any group",
}


def open_doors(cluster: SecureCluster) -> None:
    """Give the users their rights, and leave a file of settings for each. Raises Failure."""
    for user in MAY:
        path = settings_file(cluster, user)
        make_folders(path.parent)
        write_file(path, format_properties(cluster.client_settings(user)), secret=True)
        java = format_properties(cluster.java_settings(user))
        write_file(path.with_suffix(".java.properties"), java, secret=True)
    asked = (
        Asked(
            topics=(WILDCARD,),
            transactional_ids=(WILDCARD,),
            allow_principals=(f"User:{WRITER}",),
            producer=True,
        ),
        Asked(topics=(WILDCARD,), groups=(WILDCARD,), allow_principals=(f"User:{READER}",), consumer=True),
    )
    admin = Target(file=settings_file(cluster, ADMIN))
    for outcome in create_rules(admin, [rule for each in asked for rule in rules(each)]):
        if isinstance(outcome, Failure):
            raise outcome


def settings_file(cluster: SecureCluster, user: str) -> Path:
    """Return the file of a user's settings for librdkafka; Java's is beside it."""
    return cluster.directory / "clients" / f"{user}.properties"


def what_to_try(cluster: SecureCluster) -> Iterator[str]:
    """Yield the lines about users, their settings for each library, and what to try."""
    files = {user: settings_file(cluster, user) for user in MAY}
    yield f"  token  {cluster.token_file}  (of the HTTP API, which lets users in as well)"
    yield "Users, and their settings in files (for Java beside them: NAME.java.properties):"
    for user, may in MAY.items():
        yield f"  {user:<6}  {may:<35}  {files[user]}"
    yield f"To paste, for {WRITER}; {READER} and {ADMIN} have passwords of their own, in their files:"
    yield from _blocks(cluster)
    yield "Try, in another terminal:"
    yield f"  raftlog topic create orders --partitions 3 -F {files[WRITER]}"
    yield f"  seq 1000 | raftlog produce -t orders -F {files[WRITER]}"
    yield f"  raftlog consume -t orders -e -c 3 -f '%t %p %o %s\\n' -F {files[READER]}"
    yield f"  kcat -F {files[READER]} -X sasl.mechanism=PLAIN -C -t orders -o beginning -c 3"
    yield f"  raftlog acl list -F {files[ADMIN]}"
    yield f"  raftlog cluster health -F {files[ADMIN]}"
    password = f"$(sed -n s/^sasl.password=//p {files[ADMIN]})"
    ca, url = cluster.certificates.ca, cluster.admin_url()
    yield f'  curl --cacert {ca} -u "{ADMIN}:{password}" {url}/v3/clusters'


def _blocks(cluster: SecureCluster) -> Iterator[str]:
    native = cluster.client_settings(WRITER)
    python = {
        "bootstrap_servers": native["bootstrap.servers"].split(","),
        "security_protocol": native["security.protocol"],
        "sasl_mechanism": native["sasl.mechanism"],
        "sasl_plain_username": native["sasl.username"],
        "sasl_plain_password": native["sasl.password"],
        "ssl_cafile": native["ssl.ca.location"],
    }
    for heading, lines in (
        (NATIVE, format_properties(native).splitlines()),
        ("Python (confluent-kafka)", _python("settings", native)),
        ("Python (kafka-python)", _python("settings", python)),
        ("Java", format_properties(cluster.java_settings(WRITER)).splitlines()),
    ):
        yield f"  # {heading}"
        yield from (f"    {line}" for line in lines)


def _python(name: str, settings: Mapping[str, object]) -> list[str]:
    return [f"{name} = {{", *(f"    {key!r}: {value!r}," for key, value in settings.items()), "}"]
