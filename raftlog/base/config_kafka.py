"""Names of Apache Kafka's broker settings (3.9 to 4.4) that raftlog does not have.

They are no mistakes: a file written for Kafka may set them, and one warning names those that were. Only names here.
"""

from __future__ import annotations

PREFIXES = (
    "confluent.",
    "config.providers.",
    "listener.name.",
    "metrics.context.",
    "remote.log.storage.manager.",
    "rlmm.config.",
    "rsm.config.",
    "sasl.",
    "ssl.",
    "zookeeper.",
)
"""Whole families: per-listener overrides, plug-ins' own settings, security stores, ZooKeeper."""

NAMES = frozenset(
    """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms advertised.host.name
    advertised.port allow.everyone.if.no.acl.found alter.config.policy.class.name
    alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
    authorizer.class.name auto.include.jmx.reporter background.threads broker.id.generation.enable
    client.quota.callback.class config.providers connection.failed.authentication.delay.ms
    connections.max.reauth.ms control.plane.listener.name controlled.shutdown.max.retries
    controlled.shutdown.retry.backoff.ms controller.performance.always.log.threshold.ms
    controller.performance.sample.period.ms controller.quorum.append.linger.ms
    controller.quorum.auto.join.enable controller.quorum.election.backoff.max.ms
    controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
    controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
    controller.quorum.retry.backoff.ms controller.quota.window.num controller.quota.window.size.seconds
    controller.socket.timeout.ms cordoned.log.dirs create.topic.policy.class.name
    delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms delegation.token.master.key
    delegation.token.max.lifetime.ms delegation.token.secret.key
    delete.records.purgatory.purge.interval.requests early.start.listeners eligible.leader.replicas.enable
    fetch.purgatory.purge.interval.requests follower.fetch.last.tiered.offset.enable
    group.consumer.assignment.interval.ms group.consumer.max.assignment.interval.ms
    group.consumer.min.assignment.interval.ms group.consumer.regex.refresh.interval.ms
    group.coordinator.append.linger.ms
    group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes
    group.coordinator.new.enable group.coordinator.rebalance.protocols group.coordinator.threads
    group.share.assignment.interval.ms group.share.assignors group.share.delivery.count.limit
    group.share.enable group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms
    group.share.max.assignment.interval.ms group.share.max.delivery.count.limit group.share.max.groups
    group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
    group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms
    group.share.max.share.sessions group.share.max.size group.share.min.assignment.interval.ms
    group.share.min.delivery.count.limit group.share.min.heartbeat.interval.ms
    group.share.min.partition.max.record.locks group.share.min.record.lock.duration.ms
    group.share.min.session.timeout.ms group.share.partition.max.record.locks
    group.share.persister.class.name group.share.record.lock.duration.ms group.share.session.timeout.ms
    group.streams.assignment.interval.ms group.streams.heartbeat.interval.ms
    group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
    group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
    group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
    group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
    group.streams.num.standby.replicas group.streams.session.timeout.ms host.name
    inter.broker.protocol.version internal.metadata.delete.delay.millis
    internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
    kafka.metrics.polling.interval.secs kafka.metrics.reporters
    log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
    log.cleaner.threads log.dir.failure.timeout.ms log.initial.task.delay.ms log.local.retention.bytes
    log.local.retention.ms log.message.downconversion.enable log.message.format.version
    log.message.timestamp.difference.max.ms log.remote.copy.lag.bytes log.remote.copy.lag.ms
    max.connection.creation.rate max.connections.per.ip.overrides max.decompressed.message.bytes
    max.request.partition.size.limit metadata.log.segment.bytes metadata.log.segment.ms
    metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms num.io.threads
    num.network.threads num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads
    num.replica.fetchers offsets.commit.required.acks offsets.load.buffer.size
    offsets.topic.compression.codec password.encoder.cipher.algorithm password.encoder.iterations
    password.encoder.key.length password.encoder.keyfactory.algorithm password.encoder.old.secret
    password.encoder.secret port principal.builder.class producer.id.expiration.check.interval.ms
    producer.purgatory.purge.interval.requests queued.max.requests
    quota.consumer.default quota.producer.default quota.window.num quota.window.size.seconds
    remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
    remote.log.index.file.cache.total.size.bytes remote.log.index.file.cache.ttl.ms
    remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
    remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
    remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
    remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
    remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms
    remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
    remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
    remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
    remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
    remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks
    remote.log.reader.threads remote.log.storage.system.enable replica.selector.class
    replica.socket.receive.buffer.bytes replication.quota.window.num replication.quota.window.size.seconds
    reserved.broker.max.id security.providers server.max.startup.time.ms
    share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes
    share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size
    share.coordinator.snapshot.update.records.per.snapshot share.coordinator.state.topic.compression.codec
    share.coordinator.state.topic.min.isr share.coordinator.state.topic.num.partitions
    share.coordinator.state.topic.prune.interval.ms share.coordinator.state.topic.replication.factor
    share.coordinator.state.topic.segment.bytes share.coordinator.threads
    share.coordinator.write.timeout.ms share.fetch.max.fetch.records
    share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms super.users telemetry.max.bytes
    transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.partition.verification.enable
    transaction.state.log.load.buffer.size transaction.two.phase.commit.enable
    unclean.leader.election.interval.ms
    unstable.api.versions.enable unstable.feature.versions.enable
    """.split()  # noqa: SIM905 - a column of quoted names is no easier to read
)
"""Single settings."""


def is_kafkas(name: str) -> bool:
    """Whether this is a setting of Apache Kafka's that raftlog does not have."""
    return name in NAMES or name.startswith(PREFIXES)
