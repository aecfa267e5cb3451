"""A cluster with the face of testcontainers' `KafkaContainer`: change the import, and tests need no Docker.

Only what tests of programs use is here; images, commands and networks of containers are ignored.
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any, Final, Self

from raftlog.testing.cluster import Cluster
from raftlog.testing.node_process import NodeProcess

NO_SETTING: Final = re.compile(
    r"OPTS\Z|LOG4J|^JMX_|^VERSION\Z|^CREATE_TOPICS\Z|^REST_|^SCHEMA_REGISTRY_|^(NODE|BROKER)_ID\Z|^PROCESS_ROLES\Z"
    r"|^(METADATA_)?LOG_DIRS?\Z|^(ADVERTISED_)?LISTENERS\Z|^LISTENER_SECURITY_PROTOCOL_MAP\Z"
    r"|^INTER_BROKER_LISTENER_NAME\Z|^CONTROLLER_LISTENER_NAMES\Z|^CONTROLLER_QUORUM_|^ZOOKEEPER_"
)
"""Variables of Java, of other programs, and of where the container is: what it has and where it listens."""
SIGNS: Final = {1: ".", 2: "_", 3: "-"}
"""By the number of underscores in a variable of Kafka's images."""


class KafkaContainer:
    """A cluster of one node. `with_env` sets Kafka's settings by the names that Kafka's images have for them.

    The arguments of testcontainers' class (image, port and so on) are taken and ignored.
    """

    def __init__(self, *_images: Any, **_options: Any) -> None:
        self._settings: dict[str, str] = {}
        self._cluster: Cluster | None = None

    def with_kraft(self, *_given: Any, **_options: Any) -> Self:
        """Return this: a cluster without ZooKeeper is the only kind there is."""
        return self

    with_cluster_id = with_name = with_network = with_network_aliases = with_kraft
    with_exposed_ports = with_bind_ports = with_volume_mapping = with_command = with_kwargs = with_kraft

    def with_env(self, name: str, value: str) -> Self:
        """Set `KAFKA_NUM_PARTITIONS` for `num.partitions`, and so on; other variables are ignored.

        Two underscores stand for an underscore, three for a dash. Variables of Java (`KAFKA_HEAP_OPTS`), of its log and
        of other programs are not settings. Folders, listeners and roles (`KAFKA_LOG_DIRS`) are the cluster's own.
        """
        setting = name.removeprefix("KAFKA_")
        if setting != name and not NO_SETTING.search(setting):
            self._settings[re.sub("_{1,3}", lambda run: SIGNS[len(run[0])], setting.lower())] = value
        return self

    def with_envs(self, **variables: str) -> Self:
        """Set several variables."""
        for name, value in variables.items():
            self.with_env(name, value)
        return self

    def start(self, timeout: float = 0) -> Self:
        """Start the node and wait until it is ready; `timeout` is ignored. Raises ClusterError."""
        del timeout
        self.stop()  # a second start is another node
        self._cluster = Cluster(1, settings=self._settings)
        try:
            self._cluster.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, **_options: Any) -> None:
        """Kill the node and remove its data; may be called again."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def get_bootstrap_server(self) -> str:
        """Return the address for clients, host:port."""
        return self._node.address

    def get_container_host_ip(self) -> str:
        """Return the host for clients."""
        return self._node.host

    def get_exposed_port(self, _port: int) -> int:
        """Return the only port for clients."""
        return self._node.port

    def get_logs(self) -> tuple[bytes, bytes]:
        """Return the node's log, and an empty standard error, which goes there too."""
        return self._node.log_path.read_bytes(), b""

    @property
    def _node(self) -> NodeProcess:
        assert self._cluster is not None, "start() it first"
        return self._cluster.nodes[1]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
