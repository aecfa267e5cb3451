"""An administrator of a share group: has it begin at the earliest record, and looks where it is (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from raftlog.base.errors import NotController, RequestTimedOut
from raftlog.protocol.apis import ApiKey
from raftlog.protocol.message_builders import request_builders
from raftlog_chaos.workloads.port import Definite, Indefinite
from raftlog_chaos.workloads.raw_client import (
    AWAY,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    Client,
    shapes,
)

GROUP: Final = 32
SET: Final = 0
AGAIN_S: Final = 0.1
OFFSETS: Final = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
AGAIN: Final = frozenset({NotController.code, RequestTimedOut.code})


class QueueAdmin:
    """See QueueAdminPort. `bootstrap` are the brokers' addresses, host and port."""

    def __init__(self, bootstrap: Sequence[tuple[str, int]]) -> None:
        self._client = Client("queue-admin", bootstrap)

    async def begin_at_earliest(self, group: str) -> None:
        """Set `share.auto.offset.reset`, and try until it is done. Raises Definite."""
        make = shapes(INCREMENTAL_ALTER_CONFIGS)
        config = make.AlterableConfig(name="share.auto.offset.reset", config_operation=SET, value="earliest")
        resource = make.AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=(config,))
        request = make.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        while True:
            try:
                answer = await self._client.ask_any(INCREMENTAL_ALTER_CONFIGS, request)
            except AWAY:
                pass
            else:
                code = int(answer.responses[0].error_code)
                if code == 0:
                    return
                if code not in AGAIN:
                    raise Definite(f"share.auto.offset.reset of {group}: error {code}")
            await asyncio.sleep(AGAIN_S)

    async def start_offsets(self, group: str) -> dict[str, int]:
        """Return where the group begins, by key, as far as it is known. Raises Indefinite."""
        try:
            answer = await self._ask(group)
        except AWAY as error:
            raise Indefinite(f"{type(error).__name__}: {error}") from None
        (found,) = answer.groups
        codes = [int(found.error_code), *(int(p.error_code) for t in found.topics for p in t.partitions)]
        if any(codes):
            raise Indefinite(f"the offsets of {group}: error {next(filter(None, codes))}")
        return {
            f"{topic.topic_name}-{each.partition_index}": int(each.start_offset)
            for topic in found.topics
            for each in topic.partitions
            if each.start_offset >= 0
        }

    async def _ask(self, group: str) -> Any:
        find = shapes(FIND_COORDINATOR).FindCoordinatorRequest(key=group, key_type=0)
        where = await self._client.ask_any(FIND_COORDINATOR, find)
        if where.error_code:
            raise LookupError(f"no coordinator: error {where.error_code}")
        make = request_builders(OFFSETS, 1)
        wanted = make.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
        message = make.DescribeShareGroupOffsetsRequest(groups=(wanted,))
        return await self._client.ask((where.host, where.port), OFFSETS, message, version=1)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
