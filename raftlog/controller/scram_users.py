"""AlterUserScramCredentials (KIP-554): credentials are set and removed, each user wholly or not at all."""

from __future__ import annotations

from collections import Counter

from raftlog.base.config import NodeConfig
from raftlog.base.errors import (
    DuplicateResource,
    KafkaError,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from raftlog.base.machine import Decision
from raftlog.controller.decisions import LogEvent
from raftlog.controller.metadata_limits import MetadataLimits
from raftlog.metadata.controller_api import AlterScramCredentials, PartResult, PartResults, ScramAlteration
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.metadata_records import ScramCredentialChanged
from raftlog.security.scram import HASHES, check_numbers, check_user


def decide_alter_scram_credentials(
    image: MetadataImage, request: AlterScramCredentials, config: NodeConfig
) -> Decision:
    """Set credentials and remove others. Results are by user, in the order in which users first appear."""
    limits = MetadataLimits(image, config)
    times = Counter((each.user, each.mechanism) for each in request.alterations)
    by_user: dict[str, list[ScramAlteration]] = {}
    for each in request.alterations:
        by_user.setdefault(each.user, []).append(each)
    records: list[ScramCredentialChanged] = []
    results = []
    for user, alterations in by_user.items():
        try:
            for each in alterations:
                if times[user, each.mechanism] > 1:
                    raise DuplicateResource("a user's credential is altered twice in this request")
                _check(image, each)
            for each in alterations:
                if each.credential is not None and (user, each.mechanism) not in image.scram:
                    limits.add_scram(user)
        except KafkaError as error:
            results.append(PartResult(error.code, error.message))
            continue
        results.append(PartResult())
        records += (ScramCredentialChanged(user, each.mechanism, each.credential) for each in alterations)
    events = tuple(
        LogEvent(
            "info",
            "scram_credential_removed" if each.credential is None else "scram_credential_set",
            {"user": each.user, "mechanism": each.mechanism},
        )
        for each in records
    )
    return Decision(tuple(records), PartResults(tuple(results)), events)


def _check(image: MetadataImage, asked: ScramAlteration) -> None:
    check_user(asked.user)
    if asked.mechanism not in HASHES:
        raise UnsupportedSaslMechanism(f"mechanism: must be one of {', '.join(HASHES)}")
    new = asked.credential
    if new is None:
        if (asked.user, asked.mechanism) not in image.scram:
            raise ResourceNotFound("there is no such credential to delete")
        return
    check_numbers(new)
    if not new.stored_key:
        raise UnacceptableCredential("salted_password: is empty")
