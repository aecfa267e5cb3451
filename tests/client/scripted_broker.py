"""A broker on loopback that answers as a test says: what is lost, refused or written is in its hands."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from struct import Struct
from typing import Any, Self
from uuid import UUID

from raftlog.client.cluster import Cluster
from raftlog.client.connection import Dialer
from raftlog.protocol.apis import APIS, ApiKey
from raftlog.protocol.codec import decode_header, decode_request, encode_response
from raftlog.protocol.message_builders import build_response, response_builders
from tests.kit.waits import PATIENCE_S

Answer = Callable[[int, int, Any], Any]
"""Returns the response to (API key, version, request); None closes the connection, and SILENT sends no bytes."""
SILENT = object()
_LENGTH = Struct(">i")


class ScriptedBroker:
    """Broker 1 of a cluster, which leads every partition of the topics that it has. Use it in `with`."""

    def __init__(self, answer: Answer, topics: dict[str, int] | None = None) -> None:
        self._answer = answer
        self._topics = topics or {}
        self.topic_id: UUID | None = None
        """The id of every topic, as Metadata has it."""
        self.leader_epoch = 0
        """The leader epoch of every partition, as Metadata has it."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self.asked: list[int] = []
        """The API keys of all requests but ApiVersions and Metadata, in order."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._connections:
            each.close()
        self._thread.join()

    def cluster(self, *, timeout_s: float = PATIENCE_S) -> Cluster:
        """Return a client of this broker."""
        return Cluster([(self.host, self.port)], Dialer(), timeout_s=timeout_s)

    def _accept(self) -> None:
        threads = []
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                break
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            thread.start()
            threads.append(thread)
        for each in threads:
            each.join()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as stream:
                while len(prefix := stream.read(_LENGTH.size)) == _LENGTH.size:
                    frame = memoryview(stream.read(_LENGTH.unpack(prefix)[0]))
                    response = self._respond(frame)
                    if response is None:
                        return
                    connection.sendall(response)
        except OSError:
            return

    def _respond(self, frame: memoryview) -> bytes | None:
        header, position = decode_header(frame)
        key, version = header.api_key, header.api_version
        request = decode_request(key, version, frame, position)
        if key == ApiKey.API_VERSIONS:
            found = _api_versions(version)
        elif key == ApiKey.METADATA:
            found = self._metadata(version)
        else:
            self.asked.append(key)
            found = self._answer(key, version, request)
        if found is None or found is SILENT:
            return None if found is None else b""
        return encode_response(key, version, header.correlation_id, found)

    def _metadata(self, version: int) -> Any:
        make = response_builders(ApiKey.METADATA, version)
        topics = tuple(
            make.MetadataResponseTopic(
                name=name,
                topic_id=self.topic_id,
                partitions=tuple(
                    make.MetadataResponsePartition(
                        partition_index=number,
                        leader_id=1,
                        leader_epoch=self.leader_epoch,
                        replica_nodes=(1,),
                        isr_nodes=(1,),
                    )
                    for number in range(count)
                ),
            )
            for name, count in self._topics.items()
        )
        broker = make.MetadataResponseBroker(node_id=1, host=self.host, port=self.port)
        return make.MetadataResponse(brokers=(broker,), topics=topics)


def _api_versions(version: int) -> Any:
    make = response_builders(ApiKey.API_VERSIONS, version)
    served = tuple(
        make.ApiVersion(api_key=key, min_version=api.min_version, max_version=api.max_version)
        for key, api in APIS.items()
    )
    return build_response(ApiKey.API_VERSIONS, version, api_keys=served)
