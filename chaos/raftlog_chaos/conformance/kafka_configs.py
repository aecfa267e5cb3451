"""All configs of Apache Kafka 4.3, by resource and type, as its own DescribeConfigs names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def _by_name(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the type of each config, by name, out of the names of each type."""
    return {name: kind for kind, names in kinds.items() for name in names.split()}


TOPIC: Final = _by_name(
    {
        "boolean": (
            "preallocate remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable "
            "unclean.leader.election.enable"
        ),
        "double": "min.cleanable.dirty.ratio",
        "int": (
            "compression.gzip.level compression.lz4.level compression.zstd.level index.interval.bytes "
            "max.message.bytes min.insync.replicas segment.bytes segment.index.bytes"
        ),
        "list": "cleanup.policy follower.replication.throttled.replicas leader.replication.throttled.replicas",
        "long": (
            "delete.retention.ms file.delete.delay.ms flush.messages flush.ms local.retention.bytes "
            "local.retention.ms max.compaction.lag.ms message.timestamp.after.max.ms "
            "message.timestamp.before.max.ms min.compaction.lag.ms retention.bytes retention.ms "
            "segment.jitter.ms segment.ms"
        ),
        "string": "compression.type message.timestamp.type",
    }
)
"""The configs of a topic."""

GROUP: Final = _by_name(
    {
        "boolean": "share.renew.acknowledge.enable",
        "int": (
            "consumer.assignment.interval.ms consumer.heartbeat.interval.ms consumer.session.timeout.ms "
            "share.assignment.interval.ms share.delivery.count.limit share.heartbeat.interval.ms "
            "share.partition.max.record.locks share.record.lock.duration.ms share.session.timeout.ms "
            "streams.assignment.interval.ms streams.heartbeat.interval.ms streams.initial.rebalance.delay.ms "
            "streams.num.standby.replicas streams.session.timeout.ms"
        ),
        "string": "share.auto.offset.reset share.isolation.level",
    }
)
"""The configs of a group."""

CLIENT_METRICS: Final = _by_name(
    {
        "int": "interval.ms",
        "list": "match metrics",
    }
)
"""The configs of a subscription to client metrics."""

BROKER: Final = _by_name(
    {
        "boolean": (
            "follower.fetch.last.tiered.offset.enable log.preallocate "
            "transaction.partition.verification.enable unclean.leader.election.enable"
        ),
        "class": "principal.builder.class ssl.engine.factory.class",
        "double": (
            "log.cleaner.io.buffer.load.factor log.cleaner.io.max.bytes.per.second "
            "log.cleaner.min.cleanable.ratio sasl.kerberos.ticket.renew.jitter "
            "sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.window.factor "
            "sasl.login.refresh.window.jitter"
        ),
        "int": (
            "background.threads compression.gzip.level compression.lz4.level compression.zstd.level "
            "group.consumer.assignment.interval.ms group.coordinator.cached.buffer.max.bytes "
            "group.share.assignment.interval.ms group.streams.assignment.interval.ms "
            "log.cleaner.io.buffer.size log.cleaner.threads log.index.interval.bytes log.index.size.max.bytes "
            "log.segment.bytes max.connection.creation.rate max.connections max.connections.per.ip "
            "message.max.bytes min.insync.replicas num.io.threads num.network.threads "
            "num.recovery.threads.per.data.dir num.replica.fetchers producer.id.expiration.ms "
            "remote.fetch.max.wait.ms remote.log.manager.copier.thread.pool.size "
            "remote.log.manager.expiration.thread.pool.size remote.log.manager.follower.thread.pool.size "
            "remote.log.reader.threads share.coordinator.cached.buffer.max.bytes"
        ),
        "list": (
            "config.providers cordoned.log.dirs listeners log.cleanup.policy metric.reporters "
            "sasl.enabled.mechanisms sasl.kerberos.principal.to.local.rules ssl.cipher.suites "
            "ssl.enabled.protocols"
        ),
        "long": (
            "log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms "
            "log.cleaner.max.compaction.lag.ms log.cleaner.min.compaction.lag.ms log.flush.interval.messages "
            "log.flush.interval.ms log.local.retention.bytes log.local.retention.ms "
            "log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms log.retention.bytes "
            "log.retention.ms log.roll.jitter.ms log.roll.ms log.segment.delete.delay.ms "
            "remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes "
            "remote.log.manager.copy.max.bytes.per.second remote.log.manager.fetch.max.bytes.per.second "
            "sasl.kerberos.min.time.before.relogin"
        ),
        "password": (
            "sasl.jaas.config ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key "
            "ssl.keystore.password ssl.truststore.certificates ssl.truststore.password"
        ),
        "short": "sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds",
        "string": (
            "compression.type listener.security.protocol.map log.message.timestamp.type "
            "max.connections.per.ip.overrides sasl.kerberos.kinit.cmd sasl.kerberos.service.name "
            "sasl.mechanism.inter.broker.protocol ssl.client.auth ssl.endpoint.identification.algorithm "
            "ssl.keymanager.algorithm ssl.keystore.location ssl.keystore.type ssl.protocol ssl.provider "
            "ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.location "
            "ssl.truststore.type"
        ),
    }
)
"""The configs of a broker that can be changed while it runs."""

READ_ONLY: Final = _by_name(
    {
        "boolean": (
            "auto.create.topics.enable auto.leader.rebalance.enable controlled.shutdown.enable "
            "controller.quorum.auto.join.enable delete.topic.enable log.cleaner.enable "
            "remote.log.storage.system.enable sasl.oauthbearer.assertion.claim.jti.include "
            "ssl.allow.dn.changes ssl.allow.san.changes transaction.two.phase.commit.enable"
        ),
        "class": (
            "alter.config.policy.class.name client.quota.callback.class create.topic.policy.class.name "
            "sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class "
            "sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class "
            "sasl.server.callback.handler.class"
        ),
        "int": (
            "add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms "
            "alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds "
            "broker.heartbeat.interval.ms broker.id broker.session.timeout.ms "
            "connection.failed.authentication.delay.ms controller.quorum.append.linger.ms "
            "controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms "
            "controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes "
            "controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms "
            "controller.quorum.retry.backoff.ms controller.quota.window.num "
            "controller.quota.window.size.seconds controller.socket.timeout.ms default.replication.factor "
            "delete.records.purgatory.purge.interval.requests fetch.max.bytes "
            "fetch.purgatory.purge.interval.requests group.consumer.heartbeat.interval.ms "
            "group.consumer.max.assignment.interval.ms group.consumer.max.heartbeat.interval.ms "
            "group.consumer.max.session.timeout.ms group.consumer.max.size "
            "group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms "
            "group.consumer.min.session.timeout.ms group.consumer.session.timeout.ms "
            "group.coordinator.append.linger.ms group.coordinator.background.threads "
            "group.coordinator.threads group.initial.rebalance.delay.ms group.max.session.timeout.ms "
            "group.max.size group.min.session.timeout.ms group.share.delivery.count.limit "
            "group.share.heartbeat.interval.ms group.share.max.assignment.interval.ms "
            "group.share.max.delivery.count.limit group.share.max.heartbeat.interval.ms "
            "group.share.max.partition.max.record.locks group.share.max.record.lock.duration.ms "
            "group.share.max.session.timeout.ms group.share.max.share.sessions group.share.max.size "
            "group.share.min.assignment.interval.ms group.share.min.delivery.count.limit "
            "group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks "
            "group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms "
            "group.share.partition.max.record.locks group.share.record.lock.duration.ms "
            "group.share.session.timeout.ms group.streams.heartbeat.interval.ms "
            "group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms "
            "group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms "
            "group.streams.max.size group.streams.max.standby.replicas "
            "group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms "
            "group.streams.min.session.timeout.ms group.streams.num.standby.replicas "
            "group.streams.session.timeout.ms initial.broker.registration.timeout.ms "
            "kafka.metrics.polling.interval.secs log.flush.offset.checkpoint.interval.ms "
            "log.flush.start.offset.checkpoint.interval.ms log.retention.hours log.retention.minutes "
            "log.roll.hours log.roll.jitter.hours max.incremental.fetch.session.cache.slots "
            "max.request.partition.size.limit metadata.log.segment.bytes metadata.max.idle.interval.ms "
            "metrics.num.samples node.id num.partitions num.replica.alter.log.dirs.threads "
            "offset.metadata.max.bytes offsets.commit.timeout.ms offsets.load.buffer.size "
            "offsets.retention.minutes offsets.topic.compression.codec offsets.topic.num.partitions "
            "offsets.topic.segment.bytes producer.purgatory.purge.interval.requests queued.max.requests "
            "quota.window.num quota.window.size.seconds remote.log.manager.copy.quota.window.num "
            "remote.log.manager.copy.quota.window.size.seconds remote.log.manager.fetch.quota.window.num "
            "remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.thread.pool.size "
            "remote.log.metadata.custom.metadata.max.bytes remote.log.reader.max.pending.tasks "
            "replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes "
            "replica.fetch.response.max.bytes replica.fetch.wait.max.ms replica.socket.receive.buffer.bytes "
            "replica.socket.timeout.ms replication.quota.window.num replication.quota.window.size.seconds "
            "request.timeout.ms sasl.login.connect.timeout.ms sasl.login.read.timeout.ms "
            "sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.nbf.seconds "
            "sasl.oauthbearer.clock.skew.seconds sasl.server.max.receive.size "
            "share.coordinator.append.linger.ms share.coordinator.load.buffer.size "
            "share.coordinator.snapshot.update.records.per.snapshot "
            "share.coordinator.state.topic.compression.codec share.coordinator.state.topic.num.partitions "
            "share.coordinator.state.topic.segment.bytes share.coordinator.threads "
            "share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests "
            "socket.listen.backlog.size socket.receive.buffer.bytes socket.request.max.bytes "
            "socket.send.buffer.bytes telemetry.max.bytes "
            "transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms "
            "transaction.remove.expired.transaction.cleanup.interval.ms "
            "transaction.state.log.load.buffer.size transaction.state.log.min.isr "
            "transaction.state.log.num.partitions transaction.state.log.segment.bytes "
            "transactional.id.expiration.ms"
        ),
        "list": (
            "advertised.listeners controller.listener.names controller.quorum.bootstrap.servers "
            "controller.quorum.voters early.start.listeners group.consumer.assignors "
            "group.coordinator.rebalance.protocols group.share.assignors kafka.metrics.reporters log.dir "
            "log.dirs process.roles sasl.oauthbearer.expected.audience"
        ),
        "long": (
            "connections.max.idle.ms connections.max.reauth.ms delegation.token.expiry.check.interval.ms "
            "delegation.token.expiry.time.ms delegation.token.max.lifetime.ms "
            "leader.imbalance.check.interval.seconds log.dir.failure.timeout.ms "
            "log.flush.scheduler.interval.ms log.retention.check.interval.ms "
            "metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms "
            "metadata.log.segment.ms metadata.max.retention.bytes metadata.max.retention.ms "
            "metrics.sample.window.ms offsets.retention.check.interval.ms queued.max.request.bytes "
            "remote.log.manager.task.interval.ms replica.high.watermark.checkpoint.interval.ms "
            "replica.lag.time.max.ms sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms "
            "sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms socket.connection.setup.timeout.max.ms "
            "socket.connection.setup.timeout.ms"
        ),
        "password": (
            "delegation.token.secret.key sasl.oauthbearer.assertion.private.key.passphrase "
            "sasl.oauthbearer.client.credentials.client.secret"
        ),
        "short": (
            "offsets.topic.replication.factor share.coordinator.state.topic.min.isr "
            "share.coordinator.state.topic.replication.factor transaction.state.log.replication.factor"
        ),
        "string": (
            "authorizer.class.name broker.rack group.consumer.migration.policy inter.broker.listener.name "
            "metadata.log.dir metrics.recording.level remote.log.metadata.manager.class.name "
            "remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix "
            "remote.log.metadata.manager.listener.name remote.log.storage.manager.class.name "
            "remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix "
            "replica.selector.class sasl.mechanism.controller.protocol sasl.oauthbearer.assertion.algorithm "
            "sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.iss "
            "sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file "
            "sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.template.file "
            "sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.expected.issuer "
            "sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name "
            "sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url "
            "security.inter.broker.protocol security.providers ssl.principal.mapping.rules"
        ),
    }
)
"""The configs of a broker that cannot."""
