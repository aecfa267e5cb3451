"""ACLs, and what each API answers without rights.

The asker is ANONYMOUS, which has all rights that no ACL takes away.
"""

from __future__ import annotations

from typing import Any, Final

from raftlog_chaos.conformance.history import history
from raftlog_chaos.conformance.members import Fields
from raftlog_chaos.conformance.session import Session

AUTHORIZED: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ME: Final = "User:ANONYMOUS"
ALICE: Final = "User:alice"
UNKNOWN, ANY = 0, 1
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
MATCH, LITERAL, PREFIXED = 2, 3, 4
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = 2, 3, 4, 5, 6, 7, 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, CREATE_TOKENS, DESCRIBE_TOKENS = 10, 11, 12, 13, 14
DENY, ALLOW = 2, 3
THE_CLUSTER: Final = "kafka-cluster"
NO_FILTER: Final[Fields] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}

Acl = Fields


def acl(name: str, operation: int = READ, **fields: Any) -> Acl:
    """Return an ACL that lets Alice read a topic; `fields` are CreateAcls'."""
    given: Fields = {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": ALICE,
        "host": "*",
        "operation": operation,
        "permission_type": ALLOW,
    }
    return given | fields


def tidy(s: Session) -> None:
    """Have all ACLs deleted when the history ends."""
    s.at_end(lambda: s.query("DeleteAcls", 3, filters=[NO_FILTER]))


def create(s: Session, *acls: Acl, version: int = 3) -> None:
    """Create ACLs, and wait until the broker has them."""
    tidy(s)
    s.ask("CreateAcls", version, creations=list(acls))


def described(s: Session, **filters: Any) -> int:
    """Look at how many ACLs there are."""
    found = s.query("DescribeAcls", 3, **(NO_FILTER | filters))["resources"]
    return sum(len(each["acls"]) for each in found)


CREATED: Final[dict[str, Fields]] = {
    "a topic": {},
    "a prefix": {"resource_pattern_type": PREFIXED},
    "all topics": {"resource_name": "*"},
    "a prefix of *": {"resource_name": "*", "resource_pattern_type": PREFIXED},
    "a group": {"resource_type": GROUP},
    "a transactional id": {"resource_type": TRANSACTIONAL_ID, "operation": WRITE},
    "a token": {"resource_type": DELEGATION_TOKEN, "operation": DESCRIBE},
    "a user": {"resource_type": USER, "operation": CREATE_TOKENS},
    "the cluster": {
        "resource_type": CLUSTER,
        "resource_name": THE_CLUSTER,
        "operation": ALL,
        "principal": ME,  # or the history could not take it back
    },
    "another cluster": {"resource_type": CLUSTER, "resource_name": "cluster", "operation": ALTER_CONFIGS},
    "a prefix of the cluster": {
        "resource_type": CLUSTER,
        "resource_name": "kafka-",
        "resource_pattern_type": PREFIXED,
        "operation": ALTER_CONFIGS,
    },
    "a name that is empty": {"resource_name": ""},
    "a name that no topic can have": {"resource_name": "a topic/"},
    "a long name": {"resource_name": "n" * 300},
    "resource type 0": {"resource_type": UNKNOWN},
    "resource type 1": {"resource_type": ANY},
    "resource type 99": {"resource_type": 99},
    "pattern type 0": {"resource_pattern_type": UNKNOWN},
    "pattern type 1": {"resource_pattern_type": ANY},
    "pattern type 2": {"resource_pattern_type": MATCH},
    "pattern type 99": {"resource_pattern_type": 99},
    "operation 0": {"operation": UNKNOWN},
    "operation 1": {"operation": ANY},
    "operation 99": {"operation": 99},
    "an operation of the cluster for a topic": {"operation": CLUSTER_ACTION},
    "an operation of tokens for a topic": {"operation": DESCRIBE_TOKENS},
    "IdempotentWrite for a topic": {"operation": IDEMPOTENT_WRITE},
    "Write for a group": {"resource_type": GROUP, "operation": WRITE},
    "all operations": {"operation": ALL},
    "permission 0": {"permission_type": UNKNOWN},
    "permission 1": {"permission_type": ANY},
    "permission 99": {"permission_type": 99},
    "a denial": {"permission_type": DENY},
    "everybody": {"principal": "User:*"},
    "a principal without a type": {"principal": "alice"},
    "a principal without a name": {"principal": "User:"},
    "an empty principal": {"principal": ""},
    "a principal of another type": {"principal": "Group:staff"},
    "a principal in small letters": {"principal": "user:alice"},
    "a principal with a colon": {"principal": "User:CN=a:b,O=c"},
    "an empty host": {"host": ""},
    "a host's name": {"host": "host.example"},
    "an address": {"host": "192.0.2.7"},
    "a network": {"host": "192.0.2.0/24"},
}
"""An ACL that is created, by its name: the fields in which it is special."""


@history(CREATED, settings=AUTHORIZED)
def created(s: Session, odd: Fields) -> None:
    """An ACL is stored as it is, or refused for what is unknown or fits no resource."""
    create(s, acl(s.name("topic"), **odd))
    s.wait("the broker has it, or not", lambda: described(s) >= 0)
    s.wait("it is settled", lambda: described(s) == 1, within_s=0.3)
    s.ask("DescribeAcls", 3, **NO_FILTER)


@history({f"v{version}": version for version in (1, 2, 3)}, settings=AUTHORIZED)
def versions(s: Session, version: int) -> None:
    """All versions are served."""
    name = s.name("topic")
    create(s, acl(name), acl(name, WRITE), acl(name, READ), version=version)
    s.wait("the broker has them", lambda: described(s) == 2)
    s.ask("DescribeAcls", version, **NO_FILTER)
    s.ask("DeleteAcls", version, filters=[NO_FILTER])
    s.wait("they are gone", lambda: described(s) == 0)
    s.ask("DeleteAcls", version, filters=[NO_FILTER])


@history(settings=AUTHORIZED)
def some_that_are_refused(s: Session) -> None:
    """Each ACL of a request is stored or refused for itself."""
    name = s.name("topic")
    create(s, acl(name), acl(""), acl(name, WRITE))
    s.wait("the broker has them", lambda: described(s) == 2)


@history(settings=AUTHORIZED)
def created_twice(s: Session) -> None:
    """An ACL that is there is no error."""
    name = s.name("topic")
    create(s, acl(name))
    create(s, acl(name))
    s.wait("the broker has it", lambda: described(s) == 1)
    s.ask("CreateAcls", 3, creations=[])
    s.ask("DeleteAcls", 3, filters=[])


FILTERS: Final[dict[str, Fields]] = {
    "all": {},
    "topics": {"resource_type_filter": TOPIC},
    "groups": {"resource_type_filter": GROUP},
    "a name": {"resource_name_filter": "abc"},
    "a name that matches": {"resource_name_filter": "abc", "pattern_type_filter": MATCH},
    "a topic that matches": {
        "resource_type_filter": TOPIC,
        "resource_name_filter": "abcd",
        "pattern_type_filter": MATCH,
    },
    "a prefix": {"resource_name_filter": "abc", "pattern_type_filter": PREFIXED},
    "a literal": {"resource_name_filter": "abc", "pattern_type_filter": LITERAL},
    "all literals": {"pattern_type_filter": LITERAL},
    "all prefixes": {"pattern_type_filter": PREFIXED},
    "the wildcard": {"resource_name_filter": "*"},
    "the wildcard that matches": {"resource_name_filter": "*", "pattern_type_filter": MATCH},
    "an empty name": {"resource_name_filter": ""},
    "a principal": {"principal_filter": ALICE},
    "a principal without a type": {"principal_filter": "alice"},
    "an empty principal": {"principal_filter": ""},
    "everybody": {"principal_filter": "User:*"},
    "a host": {"host_filter": "192.0.2.7"},
    "any host's ACLs": {"host_filter": "*"},
    "an empty host": {"host_filter": ""},
    "an operation": {"operation": WRITE},
    "all operations": {"operation": ALL},
    "denials": {"permission_type": DENY},
    "resource type 0": {"resource_type_filter": UNKNOWN},
    "resource type 99": {"resource_type_filter": 99},
    "pattern type 0": {"pattern_type_filter": UNKNOWN},
    "pattern type 99": {"pattern_type_filter": 99},
    "operation 0": {"operation": UNKNOWN},
    "operation 99": {"operation": 99},
    "permission 0": {"permission_type": UNKNOWN},
    "permission 99": {"permission_type": 99},
}
"""Filters of the seven ACLs of `filtered`."""


@history(FILTERS, settings=AUTHORIZED)
def filtered(s: Session, odd: Fields) -> None:
    """The same filters choose what is described and what is deleted."""
    create(
        s,
        acl("abc"),
        acl("abc", WRITE, principal="User:*"),
        acl("abc", resource_pattern_type=PREFIXED),
        acl("ab", ALL, resource_pattern_type=PREFIXED, permission_type=DENY),
        acl("*", host="192.0.2.7"),
        acl("abc", resource_type=GROUP),
        acl("zz", principal="User:bob"),
    )
    s.wait("the broker has them", lambda: described(s) == 7)
    s.ask("DescribeAcls", 3, **(NO_FILTER | odd))
    answer = s.ask("DeleteAcls", 3, filters=[NO_FILTER | odd])
    gone = sum(len(each["matching_acls"]) for each in answer.get("filter_results", ()))
    s.wait("what was chosen is gone", lambda: described(s) == 7 - gone)


@history(settings=AUTHORIZED)
def several_filters(s: Session) -> None:
    """Each filter answers for itself, also if two choose the same ACL."""
    create(s, acl("abc"), acl("abd"))
    s.wait("the broker has them", lambda: described(s) == 2)
    names = ("abc", "abc", "missing")
    filters = [{**NO_FILTER, "resource_name_filter": each} for each in names]
    s.ask("DeleteAcls", 3, filters=[*filters, {**NO_FILTER, "operation": 99}])
    s.wait("one is gone", lambda: described(s) == 1)
