"""The broker settings of Apache Kafka (3.9 to 4.4) that raftlog does not have, and the treatment of each.

A setting that is harmless to ignore is accepted, kept and shown, without effect, and logs a warning. A setting about
security stops a node from starting: a node that is configured as secure must not start without. `KAFKA_SETTINGS` has a
row for every name, `SECURITY` a rule for unlisted names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, cast

from raftlog.base.config.oauth import OauthSettings
from raftlog.base.config.security import LISTENER_PREFIX, SecuritySettings
from raftlog.base.config.setting import Kind, Setting, Update, settings_of
from raftlog.base.config.tls import TlsSettings

Treatment = Literal["without effect", "security"]


class KafkaSetting(NamedTuple):
    """A setting of Apache Kafka that raftlog does not have; `why` is the rest of a sentence about raftlog."""

    row: Setting
    treatment: Treatment
    why: str

    @property
    def is_kept(self) -> bool:
        """Whether a running broker accepts it: dynamic in Kafka, and harmless here."""
        return self.row.dynamic and self.treatment == "without effect"


SECURITY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "alter.config.policy.class.name": "raftlog loads no Java classes and would ask no policy",
        "config.providers": "raftlog resolves no ${provider:key}, so a secret would be the text of its reference",
        "create.topic.policy.class.name": "raftlog loads no Java classes and would ask no policy",
        "delegation.token.": "raftlog does not carry out this setting of delegation tokens",
        "principal.builder.class": "raftlog loads no Java classes",
        "sasl.": "raftlog does not carry out this setting of SASL",
        "security.providers": "raftlog loads no Java classes",
        "ssl.": "raftlog does not carry out this setting of TLS",
    }
)
"""The features that raftlog lacks, by the beginning of a setting's name. A node with such a setting does not start."""

_CARRIED_OUT: Final = frozenset(
    {*settings_of(SecuritySettings), *settings_of(OauthSettings), *settings_of(TlsSettings)}
)

OTHER_PREFIXES: Final = (
    "confluent.",
    LISTENER_PREFIX,
    "metrics.context.",
    "remote.log.storage.manager.",
    "rlmm.config.",
    "rsm.config.",
    "zookeeper.",
)
"""Families of settings that have no rows: overrides for one listener, plug-ins' own settings, ZooKeeper."""


_LOGIN_PACE: Final = """
        sasl.kerberos.kinit.cmd:string+ sasl.kerberos.min.time.before.relogin:long+
        sasl.kerberos.ticket.renew.jitter:double+ sasl.kerberos.ticket.renew.window.factor:double+
        sasl.login.connect.timeout.ms:int sasl.login.read.timeout.ms:int
        sasl.login.refresh.buffer.seconds:short+ sasl.login.refresh.min.period.seconds:short+
        sasl.login.refresh.window.factor:double+ sasl.login.refresh.window.jitter:double+
        sasl.login.retry.backoff.max.ms:long sasl.login.retry.backoff.ms:long
        """
"""The pace of Kerberos and of a broker's own logins. raftlog has neither, so ignoring them weakens no protection."""

_HARMLESS: Final = frozenset(each.partition(":")[0] for each in _LOGIN_PACE.split())


class _Family(NamedTuple):
    treatment: Treatment
    why: str
    names: str
    """name:type if Kafka reads it only from the file, name:type* if it is dynamic cluster-wide, name:type+ per
    broker.
    """


_FAMILIES: Final = (
    _Family(
        "without effect",
        "one process is one event loop, without pools of threads",
        """
        background.threads:int* group.coordinator.background.threads:int group.coordinator.threads:int
        log.cleaner.threads:int* num.io.threads:int* num.network.threads:int*
        num.recovery.threads.per.data.dir:int* num.replica.alter.log.dirs.threads:int num.replica.fetchers:int*
        queued.max.requests:int share.coordinator.threads:int
        """,
    ),
    _Family(
        "without effect",
        "requests that wait are kept in no purgatory",
        """
        delete.records.purgatory.purge.interval.requests:int fetch.purgatory.purge.interval.requests:int
        producer.purgatory.purge.interval.requests:int share.fetch.purgatory.purge.interval.requests:int
        """,
    ),
    _Family(
        "without effect",
        "compaction reads and writes without buffers of its own",
        "log.cleaner.io.buffer.load.factor:double* log.cleaner.io.buffer.size:int*",
    ),
    _Family(
        "without effect",
        "compaction is not limited to a rate; it yields to requests after each millisecond of work",
        "log.cleaner.io.max.bytes.per.second:double*",
    ),
    _Family(
        "without effect",
        "replicas do not move between log directories",
        """
        alter.log.dirs.replication.quota.window.num:int alter.log.dirs.replication.quota.window.size.seconds:int
        replica.alter.log.dirs.io.max.bytes.per.second:long*
        """,
    ),
    _Family(
        "without effect",
        "a replication throttle is a token bucket of one second",
        "replication.quota.window.num:int replication.quota.window.size.seconds:int",
    ),
    _Family(
        "without effect",
        "quotas of clients are metadata: `raftlog quota` or kafka-configs sets them, for all clients too",
        "client.quota.callback.class:class quota.consumer.default:long quota.producer.default:long",
    ),
    _Family(
        "without effect",
        "the metadata quorum is PySyncObj with a journal of its own, not KRaft's",
        """
        controller.performance.always.log.threshold.ms:long controller.performance.sample.period.ms:long
        controller.quorum.append.linger.ms:int
        controller.quorum.election.backoff.max.ms:int controller.quorum.fetch.max.bytes:int
        controller.quorum.fetch.snapshot.max.bytes:int controller.quorum.fetch.timeout.ms:int
        controller.quorum.request.timeout.ms:int controller.quorum.retry.backoff.ms:int
        controller.socket.timeout.ms:int internal.metadata.delete.delay.millis:long
        internal.metadata.log.segment.bytes:int internal.metadata.max.batch.size.in.bytes:int
        metadata.log.segment.bytes:int metadata.log.segment.ms:long metadata.max.idle.interval.ms:int
        metadata.max.retention.bytes:long metadata.max.retention.ms:long server.max.startup.time.ms:long
        early.start.listeners:list
        """,
    ),
    _Family(
        "without effect",
        "a coordinator writes each decision at once, and computes assignments in the heartbeat that needs them",
        """
        group.consumer.assignment.interval.ms:int* group.consumer.max.assignment.interval.ms:int
        group.consumer.min.assignment.interval.ms:int group.consumer.regex.refresh.interval.ms:int
        group.coordinator.append.linger.ms:int group.coordinator.cached.buffer.max.bytes:int*
        group.coordinator.rebalance.protocols:list offsets.load.buffer.size:int
        offsets.topic.compression.codec:int transaction.state.log.load.buffer.size:int
        """,
    ),
    _Family(
        "without effect",
        "brokers verify every transaction, and coordinators keep their own pace",
        """
        add.partitions.to.txn.retry.backoff.max.ms:int add.partitions.to.txn.retry.backoff.ms:int
        transaction.abort.timed.out.transaction.cleanup.interval.ms:int
        transaction.partition.verification.enable:boolean*
        """,
    ),
    _Family(
        "without effect",
        "transactions have no two-phase commit of a client's",
        "transaction.two.phase.commit.enable:boolean",
    ),
    _Family(
        "without effect",
        "there is no tiered storage",
        """
        follower.fetch.last.tiered.offset.enable:boolean* log.local.retention.bytes:long*
        log.local.retention.ms:long* log.remote.copy.lag.bytes:long* log.remote.copy.lag.ms:long*
        remote.fetch.max.wait.ms:int* remote.list.offsets.request.timeout.ms:long*
        remote.log.index.file.cache.total.size.bytes:long* remote.log.index.file.cache.ttl.ms:long
        remote.log.manager.copier.thread.pool.size:int* remote.log.manager.copy.max.bytes.per.second:long*
        remote.log.manager.copy.quota.window.num:int remote.log.manager.copy.quota.window.size.seconds:int
        remote.log.manager.expiration.thread.pool.size:int* remote.log.manager.fetch.max.bytes.per.second:long*
        remote.log.manager.fetch.quota.window.num:int remote.log.manager.fetch.quota.window.size.seconds:int
        remote.log.manager.follower.thread.pool.size:int* remote.log.manager.task.interval.ms:long
        remote.log.manager.task.retry.backoff.max.ms:long remote.log.manager.task.retry.backoff.ms:long
        remote.log.manager.task.retry.jitter:double remote.log.manager.thread.pool.size:int
        remote.log.metadata.custom.metadata.max.bytes:int remote.log.metadata.manager.class.name:string
        remote.log.metadata.manager.class.path:string remote.log.metadata.manager.impl.prefix:string
        remote.log.metadata.manager.listener.name:string remote.log.reader.max.pending.tasks:int
        remote.log.reader.threads:int* remote.log.storage.manager.class.name:string
        remote.log.storage.manager.class.path:string remote.log.storage.manager.impl.prefix:string
        remote.log.storage.system.enable:boolean
        """,
    ),
    _Family(
        "without effect",
        "share groups assign at once, and their coordinators write each batch at once from memory of its own",
        """
        group.share.assignment.interval.ms:int* group.share.max.assignment.interval.ms:int
        group.share.min.assignment.interval.ms:int group.share.persister.class.name:string
        share.coordinator.append.linger.ms:int share.coordinator.cached.buffer.max.bytes:int*
        share.coordinator.load.buffer.size:int share.coordinator.state.topic.compression.codec:int
        """,
    ),
    _Family(
        "without effect",
        "there are no streams groups",
        """
        group.streams.assignment.interval.ms:int* group.streams.heartbeat.interval.ms:int
        group.streams.initial.rebalance.delay.ms:int group.streams.max.assignment.interval.ms:int
        group.streams.max.heartbeat.interval.ms:int group.streams.max.session.timeout.ms:int
        group.streams.max.size:int group.streams.max.standby.replicas:int
        group.streams.min.assignment.interval.ms:int group.streams.min.heartbeat.interval.ms:int
        group.streams.min.session.timeout.ms:int group.streams.num.standby.replicas:int
        group.streams.session.timeout.ms:int
        """,
    ),
    _Family(
        "without effect",
        "no Java class is loaded; the metrics are at /metrics of the admin API",
        "kafka.metrics.reporters:list metric.reporters:list*",
    ),
    _Family(
        "without effect",
        "metrics are counters and histograms at /metrics, without windows of samples",
        """
        auto.include.jmx.reporter:boolean kafka.metrics.polling.interval.secs:int metrics.num.samples:int
        metrics.recording.level:string metrics.sample.window.ms:long
        """,
    ),
    _Family(
        "without effect",
        "the node decides this by itself",
        """
        log.dir.failure.timeout.ms:long log.initial.task.delay.ms:long max.request.partition.size.limit:int
        replica.socket.receive.buffer.bytes:int
        socket.connection.setup.timeout.max.ms:long socket.connection.setup.timeout.ms:long
        unclean.leader.election.interval.ms:long
        """,
    ),
    _Family(
        "without effect",
        "every API and feature that is built is offered, and no other",
        """
        eligible.leader.replicas.enable:boolean unstable.api.versions.enable:boolean
        unstable.feature.versions.enable:boolean
        """,
    ),
    _Family(
        "without effect",
        "Apache Kafka 4.3 does not have this setting either",
        """
        advertised.host.name:string advertised.port:int broker.id.generation.enable:boolean
        control.plane.listener.name:string controlled.shutdown.max.retries:int
        controlled.shutdown.retry.backoff.ms:long group.coordinator.new.enable:boolean group.share.enable:boolean
        group.share.max.groups:short host.name:string
        inter.broker.protocol.version:string log.message.downconversion.enable:boolean
        log.message.format.version:string log.message.timestamp.difference.max.ms:long
        max.decompressed.message.bytes:int offsets.commit.required.acks:short
        password.encoder.cipher.algorithm:string password.encoder.iterations:int password.encoder.key.length:int
        password.encoder.keyfactory.algorithm:string password.encoder.old.secret:password
        password.encoder.secret:password port:int reserved.broker.max.id:int share.fetch.max.fetch.records:int
        """,
    ),
    _Family(
        "without effect",
        "brokers have no logins that run out, neither by Kerberos nor by OAuth",
        _LOGIN_PACE,
    ),
    _Family(
        "security",
        "",  # SECURITY explains each
        """
        alter.config.policy.class.name:class config.providers:list*
        create.topic.policy.class.name:class delegation.token.master.key:password principal.builder.class:class+
        sasl.client.callback.handler.class:class sasl.jaas.config:password+
        sasl.kerberos.principal.to.local.rules:list+ sasl.kerberos.service.name:string+
        sasl.login.callback.handler.class:class sasl.login.class:class sasl.mechanism.controller.protocol:string
        sasl.mechanism.inter.broker.protocol:string+ sasl.oauthbearer.assertion.algorithm:string
        sasl.oauthbearer.assertion.claim.aud:string sasl.oauthbearer.assertion.claim.exp.seconds:int
        sasl.oauthbearer.assertion.claim.iss:string sasl.oauthbearer.assertion.claim.jti.include:boolean
        sasl.oauthbearer.assertion.claim.nbf.seconds:int sasl.oauthbearer.assertion.claim.sub:string
        sasl.oauthbearer.assertion.file:string sasl.oauthbearer.assertion.private.key.file:string
        sasl.oauthbearer.assertion.private.key.passphrase:password
        sasl.oauthbearer.assertion.template.file:string sasl.oauthbearer.client.credentials.client.id:string
        sasl.oauthbearer.client.credentials.client.secret:password
        sasl.oauthbearer.jwt.retriever.class:class sasl.oauthbearer.jwt.validator.class:class
        sasl.oauthbearer.scope:string sasl.oauthbearer.token.endpoint.url:string
        sasl.server.callback.handler.class:class security.providers:string
        ssl.allow.dn.changes:boolean ssl.allow.san.changes:boolean ssl.cipher.suites:list+
        ssl.engine.factory.class:class+ ssl.keymanager.algorithm:string+ ssl.protocol:string+
        ssl.provider:string+ ssl.secure.random.implementation:string+ ssl.trustmanager.algorithm:string+
        """,
    ),
)

_ENDINGS: Final[Mapping[Treatment, str]] = {
    "without effect": "",
    "security": "; no node starts with it",
}
_UPDATES: Final[Mapping[str, Update]] = {"*": "cluster-wide", "+": "per-broker"}


def missing_security(name: str) -> str | None:
    """Return the missing feature of a setting about security; None for any other setting.

    An override for one listener (and one mechanism: `listener.name.external.scram-sha-512.sasl.jaas.config`) counts as
    the setting that it overrides, as does a distribution's own name for it.
    """
    candidates = [name, name.removeprefix("confluent.")]
    if name in _CARRIED_OUT:
        return None
    if name.startswith(LISTENER_PREFIX):
        _, *rest = name.removeprefix(LISTENER_PREFIX).split(".")
        candidates += [".".join(rest), ".".join(rest[1:])]
    if not _HARMLESS.isdisjoint(candidates):
        return None
    return next(
        (why for each in candidates for prefix, why in SECURITY.items() if each.startswith(prefix)), None
    )


def is_kafkas(name: str) -> bool:
    """Return whether this is a setting of Apache Kafka that raftlog does not have."""
    return name in KAFKA_SETTINGS or name.startswith(OTHER_PREFIXES) or missing_security(name) is not None


def _read(families: tuple[_Family, ...]) -> Iterator[tuple[str, KafkaSetting]]:
    for family in families:
        for word in family.names.split():
            name, _, kind = word.partition(":")
            why = family.why or missing_security(name) or ""
            row = Setting(
                name,
                cast("Kind", kind.rstrip("*+")),
                None,
                f"{why[0].upper()}{why[1:]}{_ENDINGS[family.treatment]}",
                update=_UPDATES.get(kind[-1], "read-only"),
                nullable=True,
                applied=family.treatment != "without effect",
            )
            yield name, KafkaSetting(row, family.treatment, why)


KAFKA_SETTINGS: Final[Mapping[str, KafkaSetting]] = MappingProxyType(dict(_read(_FAMILIES)))
"""Every setting, by its name."""
