"""The use of `controller_mutation_rate` by clients: soft, as in Kafka, so a new controller begins at zero."""

from __future__ import annotations

import math
from typing import Final

from raftlog.metadata.mutation_charges import ChargeMutations, MutationsCharged
from raftlog.security.quotas import MUTATION, CountedAs, Quotas, TokenBucket, Windows, quota_for

MAX_KEPT: Final = 10_000
"""Buckets that are kept. Clients choose their ids, so the number is bounded; the oldest bucket is evicted."""


class MutationQuotas:
    """The token buckets of all users and clients that have a quota."""

    def __init__(self, span: Windows) -> None:
        self._span = span
        self._buckets: dict[CountedAs, TokenBucket] = {}

    def charge(self, quotas: Quotas, request: ChargeMutations, now: float) -> MutationsCharged:
        """Charge the partitions of a request. A strict request gets no part beyond the quota (KIP-599)."""
        quota = quota_for(quotas, MUTATION, request.user, request.client_id)
        if quota is None:
            return MutationsCharged((True,) * len(request.sizes))
        bucket = self._bucket(quota.counted_as, quota.limit, now)
        bucket.wait_s(quota.limit, now)  # refills the bucket as a side effect
        allowed = []
        for size in request.sizes:
            may = not size or not request.strict or bucket.tokens >= 0
            allowed.append(may)
            if may:
                bucket.use(size)
        if request.strict and all(allowed):
            return MutationsCharged(tuple(allowed))
        return MutationsCharged(tuple(allowed), math.ceil(bucket.wait_s(quota.limit, now) * 1000))

    def _bucket(self, counted_as: CountedAs, limit: float, now: float) -> TokenBucket:
        bucket = self._buckets.get(counted_as)
        if bucket is None:
            if len(self._buckets) >= MAX_KEPT:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[counted_as] = TokenBucket(self._span, limit, now)
        return bucket
