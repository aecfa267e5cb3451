"""The classes of CVEs that Kafka and its clients have had, and the tests that show raftlog to be without them.

`ELSEWHERE` names tests that stand beside the code that they are about. The other tests are here.
"""

from __future__ import annotations

import ast
import gzip
import socket
import threading
import tracemalloc
from functools import cache
from pathlib import Path
from struct import pack
from typing import Final

import cramjam
import lz4.frame
import pytest
from msgspec.structs import replace

from raftlog.base.config import load_config
from raftlog.base.errors import CorruptMessage
from raftlog.broker.rights import follow_rules
from raftlog.client.connection import Connection
from raftlog.metadata.controller_api import AlterConfigs, ConfigAlteration, ConfigOp, CreateAcls, DeleteAcls
from raftlog.metadata.image import EMPTY_IMAGE, MetadataImage
from raftlog.metadata.snapshot import decode_image, encode_image
from raftlog.protocol.message_builders import request_builders
from raftlog.records.compression import GZIP, LZ4, SNAPPY, XERIAL_HEADER, ZSTD, decompress
from raftlog.security.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from raftlog.security.authorizer import Authorizer
from tests.controller.controller_cluster import ControllerCluster
from tests.kit.errors import raises_faults

TESTS: Final = Path(__file__).parents[1]

ELSEWHERE: Final[dict[str, tuple[str, ...]]] = {
    "CVE-2022-34917 memory before authentication": (
        "broker/network/test_login.py::test_frames_are_short_before_a_login_only",
        "broker/network/test_login.py::test_a_long_message_of_a_login_is_refused",
        "broker/network/test_login.py::test_a_client_that_does_not_log_in_is_closed",
        "broker/network/test_login.py::test_no_other_request_is_served_before_a_login",
        "broker/network/test_connection.py::test_an_announced_length_alone_takes_no_memory",
        "broker/network/test_idle_connections.py::test_a_large_frame_for_which_others_wait_has_to_come_fast",
        "broker/links/test_peer_channel.py::test_an_announced_length_alone_takes_no_memory",
        "protocol/test_codec.py::test_hostile_lengths_cost_no_memory",
    ),
    "CVE-2023-34455 decompression": (
        "records/test_compression.py::test_a_bomb_is_cut_off",
        "records/test_compression.py::test_a_stream_cut_at_any_byte_is_corrupt",
        "records/test_compression.py::test_garbage_raises_nothing_but_corrupt",
        "records/test_validation.py::test_a_bomb_is_given_up_at_its_limit_and_never_whole_in_memory",
        "broker/test_client_telemetry.py::test_a_bomb_is_refused_by_what_it_would_become",
    ),
    "CVE-2024-27309 rules that get lost": (
        "metadata/test_record_replay.py::test_rules_come_and_go_one_by_one",
        "security/test_authorizer.py::test_answers_are_those_of_the_model_while_rules_come_and_go",
        "clients/test_security.py::test_users_and_rules_outlive_the_nodes",
    ),
    "CVE-2024-56128 the nonce of SCRAM": (
        "security/test_scram.py::test_the_final_message_must_bring_the_whole_nonce",
        "security/test_scram.py::test_an_exchange_goes_once",
        "security/test_scram.py::test_a_first_message_that_is_none_is_refused",
    ),
    "CVE-2021-38153 comparisons that take their time": (
        "house/test_constant_time.py::test_secrets_are_compared_in_constant_time",
    ),
    "CVE-2024-31141, CVE-2025-27817, CVE-2023-25194 configs that read files, ask addresses or load code": (
        "base/test_config_kafka.py::test_a_node_that_must_be_closed_does_not_start_open",
    ),
    "CVE-2025-27818, CVE-2025-27819, CVE-2023-25194 login modules of somebody's choice": (
        "base/test_jaas.py::test_other_lines_are_refused_and_not_repeated",
        "base/test_config_kafka.py::test_an_impossible_login_keeps_a_node_from_starting",
    ),
    "CVE-2017-12610 somebody else's name": (
        "security/test_sasl_messages.py::test_a_login_cannot_name_another_user",
        "security/test_scram.py::test_a_first_message_that_is_none_is_refused",
        "broker/network/test_login.py::test_another_login_may_not_change_the_user",
        "broker/handlers/test_delegation_tokens.py::test_principals_of_tokens_are_users",
    ),
    "CVE-2018-1288 a forged fetch of a replica": (
        "broker/handlers/test_fetch.py::test_a_client_that_claims_a_replica_id_does_not_move_the_high_watermark",
        "broker/handlers/test_fetch.py::test_a_broker_is_not_heard_as_a_follower_where_it_came_to_ask",
    ),
    "CVE-2018-17196 Produce without the right": (
        "broker/handlers/test_rights.py::test_a_transactional_batch_needs_the_right_to_its_transactional_id",
        "broker/handlers/test_rights.py::test_a_topic_that_may_not_be_written_is_refused_whether_it_exists",
        "broker/handlers/test_rights.py::test_a_missing_right_is_an_error_that_reveals_no_more",
        "broker/handlers/test_rights.py::test_every_right_of_the_rows_is_tested",
    ),
    "CVE-2019-12399 secrets in answers": (
        "base/test_config_topic.py::test_a_described_broker_hides_its_secret_and_shows_the_rest",
        "base/test_config_kafka.py::test_no_password_of_a_listener_is_shown",
        "base/test_config_tls.py::test_no_key_and_no_password_is_shown",
        "broker/handlers/test_security.py::test_users_are_described_without_anything_secret",
        "admin/test_auth.py::test_every_change_is_in_the_audit_log_without_secrets",
    ),
    "CVE-2026-10142, CVE-2026-10143 a client that believes a server": (
        "security/test_scram_client.py::test_a_server_with_another_nonce_or_too_much_work_is_refused",
        "broker/links/test_peer_channel.py::test_an_impossible_length_ends_the_connection",
        "quorum/test_channel.py::test_an_oversized_frame_closes_an_open_channel",
        "admin/test_kafka_client.py::test_bytes_that_answer_nothing_end_that_connection_only",
    ),
}


@cache
def _tests_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize("cve", ELSEWHERE)
def test_each_class_has_its_tests(cve: str) -> None:
    """They are where this table says, so that none is renamed or removed unseen."""
    for each in ELSEWHERE[cve]:
        path, _, name = each.partition("::")
        assert name in _tests_in(TESTS / path), each


# --- CVE-2023-34455: lengths that lie

MAX_BYTES: Final = 100_000
LONGEST: Final = 2**31 - 1


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


BLOCK: Final = bytes(cramjam.snappy.compress_raw(b"a line"))
HALF: Final = bytes(cramjam.snappy.compress_raw(bytes(40_000)))
LIES: Final = {
    "a raw block of 4 GB": (SNAPPY, varint(2**32 - 1) + BLOCK[1:]),
    "a raw block of 1 MB": (SNAPPY, varint(1 << 20) + BLOCK[1:]),
    "a block of xerial that is longer than the batch": (SNAPPY, XERIAL_HEADER + pack(">i", LONGEST) + BLOCK),
    "a block of xerial of a negative length": (SNAPPY, XERIAL_HEADER + pack(">i", -1) + BLOCK),
    "a block of xerial that holds 4 GB": (
        SNAPPY,
        XERIAL_HEADER + pack(">i", len(BLOCK) + 4) + varint(2**32 - 1) + BLOCK[1:],
    ),
    "blocks of xerial that are too many": (SNAPPY, XERIAL_HEADER + (pack(">i", len(HALF)) + HALF) * 3),
    "members of gzip that are too many": (GZIP, gzip.compress(bytes(40_000)) * 3),
    "a member of gzip whose size is a lie": (GZIP, gzip.compress(bytes(10))[:-4] + pack("<I", 2**32 - 1)),
    "a frame of lz4 that says 4 GB": (LZ4, lz4.frame.compress(bytes(10), content_checksum=True)[:-9]),
    "a frame of lz4 that is too large": (LZ4, lz4.frame.compress(bytes(MAX_BYTES + 1))),
    "a frame of zstd that says an exabyte": (
        ZSTD,
        b"\x28\xb5\x2f\xfd\xe0" + pack("<Q", 1 << 60) + b"\x01\x00\x00",
    ),
    "frames of zstd that are too large": (ZSTD, bytes(cramjam.zstd.compress(bytes(40_000))) * 3),
}


@pytest.mark.parametrize("lie", LIES)
def test_lengths_that_lie_are_refused_and_cost_no_memory(lie: str) -> None:
    """CVE-2023-34455: in the framing of each codec; neither is believed before the bytes are there."""
    codec, compressed = LIES[lie]
    with pytest.raises(CorruptMessage):
        decompress(codec, compressed, max_bytes=MAX_BYTES)  # once, so that libraries are loaded
    tracemalloc.start()
    try:
        with pytest.raises(CorruptMessage):
            decompress(codec, compressed, max_bytes=MAX_BYTES)
        assert tracemalloc.get_traced_memory()[1] < 10 * MAX_BYTES
    finally:
        tracemalloc.stop()


# --- CVE-2024-27309: the other rules hold


def rule(operation: Operation, permission: Permission) -> Acl:
    return Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:al", "*", operation, permission)


RULES: Final = (
    rule(Operation.READ, Permission.ALLOW),
    rule(Operation.WRITE, Permission.DENY),
    rule(Operation.ALL, Permission.ALLOW),
)


def denies_writing(image: MetadataImage) -> bool:
    """Whether an authorizer that has only ever seen this image denies what the DENY is about."""
    fresh = Authorizer()
    follow_rules(fresh, EMPTY_IMAGE, image)
    return not fresh.allows("User:al", "h", Operation.WRITE, ResourceType.TOPIC, "orders")


@pytest.mark.parametrize("removed", [RULES[0], RULES[2]])
def test_one_of_several_rules_goes_and_the_others_hold(removed: Acl) -> None:
    """CVE-2024-27309: through the change, a snapshot, and a failover of the controller with later changes."""
    cluster = ControllerCluster(2)
    cluster.start(1)
    cluster.ask(CreateAcls(RULES))
    followed = Authorizer()
    before = cluster.image
    follow_rules(followed, EMPTY_IMAGE, before)
    asked = AclFilter(
        removed.resource_type,
        removed.resource_name,
        removed.pattern_type,
        removed.principal,
        removed.host,
        removed.operation,
        removed.permission,
    )
    assert cluster.ask(DeleteAcls((asked,))).results[0].matches == (removed,)
    follow_rules(followed, before, cluster.image)
    left = set(RULES) - {removed}
    assert not followed.allows("User:al", "h", Operation.WRITE, ResourceType.TOPIC, "orders")
    assert denies_writing(decode_image(encode_image(cluster.image)))
    cluster.restart_from_snapshot(2)
    cluster.elect(2)
    cluster.ask(CreateAcls((replace(removed, resource_name="another"),)))
    for image in cluster.images.values():
        assert {each for each in image.acls if each.resource_name == "orders"} == left
        assert denies_writing(image)


# --- CVE-2024-31141, CVE-2025-27817, CVE-2023-25194: configs that reach further than themselves

REACHING: Final = {
    "config.providers": "file",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "sasl.oauthbearer.token.endpoint.url": "http://169.254.169.254/latest",
    "sasl.oauthbearer.assertion.file": "/etc/passwd",
    "sasl.login.callback.handler.class": "org.example.Handler",
    "sasl.login.class": "org.example.Login",
    "principal.builder.class": "org.example.Builder",
    "security.providers": "org.example.Provider",
    "ssl.engine.factory.class": "org.example.Factory",
    "create.topic.policy.class.name": "org.example.Policy",
    "listener.name.plaintext.plain.sasl.server.callback.handler.class": "org.example.Handler",
}


@pytest.mark.parametrize("name", REACHING)
def test_a_config_that_reads_files_asks_addresses_or_loads_code_keeps_a_node_from_starting(name: str) -> None:
    """CVE-2024-31141, CVE-2025-27817: no such feature is implemented, so no such value is accepted."""
    with raises_faults(name):
        load_config({name: REACHING[name]})


@pytest.mark.parametrize(
    "name",
    [
        *REACHING,
        "sasl.jaas.config",
        "delegation.token.secret.key",
        "ssl.keystore.location",
        "ssl.truststore.location",
        "super.users",
        "authorizer.class.name",
    ],
)
@pytest.mark.parametrize("resource", [("broker", "1"), ("broker", ""), ("topic", "orders"), ("group", "g")])
def test_no_client_can_set_a_config_that_names_files_addresses_or_classes(
    name: str, resource: tuple[str, str]
) -> None:
    """CVE-2023-25194: neither files nor addresses nor classes nor secrets of a node come from a client."""
    cluster = ControllerCluster()
    cluster.start(1)
    cluster.create("orders", 1, 1)
    value = REACHING.get(name, "/etc/passwd")
    asked = AlterConfigs((ConfigAlteration(*resource, (ConfigOp(name, value),)),))
    (result,) = cluster.ask(asked).results
    assert result.error_code
    assert not any(name in configs for configs in cluster.image.configs.values())


def test_a_reference_to_a_file_or_variable_is_its_own_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CVE-2024-31141: `${file:…}` and `${env:…}` are resolved nowhere."""
    (tmp_path / "secret").write_text("key=treasure")
    monkeypatch.setenv("TREASURE", "treasure")
    for reference in (f"${{file:{tmp_path}/secret:key}}", "${env:TREASURE}"):
        assert load_config({"broker.rack": reference}).broker_rack == reference


# --- CVE-2026-10142: a client that believes a server


@pytest.mark.parametrize(
    "answer",
    [
        pack(">i", LONGEST),
        pack(">i", -1),
        pack(">i", 2) + b"no",
        pack(">ii", 4, 1),
        pack(">iibii", 13, 7, 0, 0, 0),
        pack(">iib", 13, 1, 0) + b"\xff" * 8,
        b"\x16\x03\x01",
        b"",
    ],
)
def test_a_command_believes_no_length_and_no_answer_of_a_false_broker(answer: bytes) -> None:
    """CVE-2026-10142: an impossible length, another request's answer, and no answer are the end of it."""
    ours, theirs = socket.socketpair()
    ours.settimeout(5)

    def serve() -> None:
        with theirs:
            theirs.recv(1000)
            theirs.sendall(answer)
            theirs.shutdown(socket.SHUT_WR)

    server = threading.Thread(target=serve)
    server.start()
    make = request_builders(41, 3)
    tracemalloc.start()
    try:
        with Connection(ours) as connection, pytest.raises(OSError):
            connection.ask(41, 3, make.DescribeDelegationTokenRequest(owners=None))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
        server.join()
