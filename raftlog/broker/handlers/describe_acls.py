"""DescribeAcls 1-3: the ACLs that match a filter, by resource (KIP-140, KIP-290)."""

from __future__ import annotations

from typing import Any, Final

from raftlog.base.errors import NONE
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.broker.handlers.shared.acl_messages import check_enabled, filter_of
from raftlog.broker.long_work.turns import each_part
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DESCRIBE_CLUSTER, Acl, PatternType, ResourceType

API_KEY: Final = ApiKey.DESCRIBE_ACLS


async def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond from the newest image."""
    check_enabled(broker)
    asked = filter_of(message)
    by_resource: dict[tuple[ResourceType, str, PatternType], list[Acl]] = {}

    def match(acl: Acl) -> None:
        if asked.matches(acl):
            key = (acl.resource_type, acl.resource_name, acl.pattern_type)
            by_resource.setdefault(key, []).append(acl)

    await each_part(broker.env, tuple(broker.image().acls), match)
    make = response_builders(API_KEY, request.api_version)
    resources = [
        make.DescribeAclsResource(
            resource_type=int(kind),
            resource_name=name,
            pattern_type=int(pattern),
            acls=tuple(
                make.AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=int(acl.operation),
                    permission_type=int(acl.permission),
                )
                for acl in acls
            ),
        )
        for (kind, name, pattern), acls in sorted(by_resource.items())
    ]
    return make.DescribeAclsResponse(
        throttle_time=0, error_code=NONE, error_message=None, resources=tuple(resources)
    )


API: Final = Api(
    key=API_KEY, handle=handle, needs=DESCRIBE_CLUSTER, max_parts=AT_ONCE, audit=NoChange(), controllers=True
)
