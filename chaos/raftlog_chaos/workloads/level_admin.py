"""An administrator that requests feature levels, and the features of a newer level. Each request is made once."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from raftlog.base.errors import (
    BrokerIdNotRegistered,
    InvalidUpdateVersion,
    NotController,
    RequestTimedOut,
    UnsupportedVersion,
)
from raftlog.metadata.controller_api import SAFE_DOWNGRADE, UPGRADE
from raftlog_chaos.workloads.mover import LINGERS_S, TIMEOUT_MS
from raftlog_chaos.workloads.raw_client import (
    ALTER_CLIENT_QUOTAS,
    AWAY,
    UNREGISTER_BROKER,
    UPDATE_FEATURES,
    Client,
    shapes,
)

UNCERTAIN: Final = frozenset({NotController.code, RequestTimedOut.code})
"""It is unknown whether, and when, it is done."""
QUOTA: Final = "producer_byte_rate"
NONE: Final = 0


class LevelAdmin:
    """Methods return an error code, or None if the outcome is unknown."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.certain_at = 0.0
        """From then on no earlier request can take effect."""
        self.levels: dict[str, int] = {}
        """The levels that were acknowledged."""
        self.quotas: dict[str, float] = {}
        """The quotas of users that were acknowledged."""
        self.refused_levels = 0
        self.refused_quotas = 0

    async def set_level(self, name: str, level: int, *, lower: bool = False) -> int | None:
        """Request another level of a feature."""
        make = shapes(UPDATE_FEATURES)
        update = make.FeatureUpdateKey(
            feature=name, max_version_level=level, upgrade_type=SAFE_DOWNGRADE if lower else UPGRADE
        )
        request = make.UpdateFeaturesRequest(
            timeout=TIMEOUT_MS, feature_updates=(update,), validate_only=False
        )
        response = await self._ask(UPDATE_FEATURES, request)
        if response is None:
            return None
        codes = [int(response.error_code), *(int(each.error_code) for each in response.results)]
        code = self._outcome(next((each for each in codes if each), NONE))
        if code == NONE:
            self.levels[name] = level
        self.refused_levels += code == InvalidUpdateVersion.code
        return code

    async def set_quota(self, user: str, rate: float) -> int | None:
        """Request a quota of a user: it needs level 1 of the metadata."""
        make = shapes(ALTER_CLIENT_QUOTAS)
        entity = (make.EntityData(entity_type="user", entity_name=user),)
        ops = (make.OpData(key=QUOTA, value=rate, remove=False),)
        request = make.AlterClientQuotasRequest(
            entries=(make.EntryData(entity=entity, ops=ops),), validate_only=False
        )
        response = await self._ask(ALTER_CLIENT_QUOTAS, request)
        if response is None:
            return None
        code = self._outcome(int(response.entries[0].error_code))
        if code == NONE:
            self.quotas[user] = rate
        self.refused_quotas += code == UnsupportedVersion.code
        return code

    async def unregister(self, broker_id: int) -> None:
        """Unregister a stopped broker, with retries until that is certain."""
        request = shapes(UNREGISTER_BROKER).UnregisterBrokerRequest(broker_id=broker_id)
        while True:
            response = await self._ask(UNREGISTER_BROKER, request)
            if response is not None and int(response.error_code) in (NONE, BrokerIdNotRegistered.code):
                return
            await asyncio.sleep(0.1)

    async def _ask(self, api_key: int, request: Any) -> Any | None:
        try:
            return await self._client.ask_any(api_key, request)
        except AWAY:
            self._doubt()
            return None

    def _outcome(self, code: int) -> int | None:
        if code in UNCERTAIN:
            self._doubt()
            return None
        return code

    def _doubt(self) -> None:
        self.certain_at = asyncio.get_running_loop().time() + LINGERS_S
