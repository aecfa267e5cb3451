"""A cluster with the face of testcontainers' `KafkaContainer`: change the import, and tests need no Docker.

Only what tests of programs use is here; images, commands and networks of containers mean nothing to it.
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any, Final, Self

from raftlog.testing.cluster import Cluster

NO_SETTING: Final = re.compile("OPTS$|LOG4J|^JMX_|^VERSION$")
SIGNS: Final = {1: ".", 2: "_", 3: "-"}
"""By the number of underscores in a variable of Kafka's images."""


class KafkaContainer:
    """A cluster of one node. `with_env` sets Kafka's settings by the names that Kafka's images have for them.

    The arguments of testcontainers' class (image, port and so on) are taken and ignored.
    """

    def __init__(self, *_images: Any, **_options: Any) -> None:
        self._settings: dict[str, str] = {}
        self._cluster: Cluster | None = None

    def with_kraft(self) -> Self:
        """Return this: a cluster without ZooKeeper is the only kind there is."""
        return self

    def with_env(self, name: str, value: str) -> Self:
        """Set `KAFKA_NUM_PARTITIONS` for `num.partitions`, and so on; other variables mean nothing here.

        Two underscores are one, three are a dash. Those of Java (`KAFKA_HEAP_OPTS`) and its log are no settings.
        """
        setting = name.removeprefix("KAFKA_")
        if setting != name and not NO_SETTING.search(setting):
            self._settings[re.sub("_{1,3}", lambda run: SIGNS[len(run[0])], setting.lower())] = value
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
        assert self._cluster is not None, "start() it first"
        return self._cluster.bootstrap_servers

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
