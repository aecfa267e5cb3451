"""DescribeUserScramCredentials 0: which users have credentials of which mechanism, without secrets (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from raftlog.base.errors import NONE, DuplicateResource, ResourceNotFound
from raftlog.broker.api import AT_ONCE, Api, NoChange
from raftlog.broker.context import BrokerContext, RequestContext
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import response_builders
from raftlog.security.acls import DESCRIBE_CLUSTER
from raftlog.security.scram import NUMBERS, ScramCredential

API_KEY: Final = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS


def handle(broker: BrokerContext, request: RequestContext, message: Any) -> Any:
    """Respond from the newest image; without names, for all users."""
    by_user: dict[str, dict[str, ScramCredential]] = {}
    for (user, mechanism), credential in broker.image().scram.items():
        by_user.setdefault(user, {})[mechanism] = credential
    asked = Counter(each.name for each in message.users or ()) or Counter(by_user.keys())
    make = response_builders(API_KEY, request.api_version)
    results = []
    for user, times in asked.items():
        error_code, why = NONE, None
        if times > 1:
            error_code, why = DuplicateResource.code, "the user is named more than once in this request"
        elif user not in by_user:
            error_code, why = ResourceNotFound.code, f"user {user[:100]!r} has no credentials"
        results.append(
            make.DescribeUserScramCredentialsResult(
                user=user,
                error_code=error_code,
                error_message=why,
                credential_infos=()
                if error_code
                else tuple(
                    make.CredentialInfo(mechanism=NUMBERS[mechanism], iterations=each.iterations)
                    for mechanism, each in sorted(by_user[user].items())
                ),
            )
        )
    return make.DescribeUserScramCredentialsResponse(
        throttle_time=0, error_code=NONE, error_message=None, results=tuple(results)
    )


API: Final = Api(
    key=API_KEY, handle=handle, needs=DESCRIBE_CLUSTER, max_parts=AT_ONCE, audit=NoChange(), controllers=True
)
