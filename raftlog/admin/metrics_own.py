"""raftlog's own metrics, `raftlog_*`: of each node, and of the cluster as it knows it.

Counters count since the process began. Each node with a replica of a partition exports it, with `role`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from raftlog import __version__
from raftlog.admin.cluster_summary import Survey
from raftlog.admin.exposition import Family, by_name, histogram, labelled, labels, single
from raftlog.admin.scrape import Scrape
from raftlog.base.faults import name_of
from raftlog.base.record_ages import NOTHING_IS_OLD_MS
from raftlog.protocol.apis import APIS


def families(scrape: Scrape) -> Iterator[Family]:
    """Yield all of them."""
    yield from _node(scrape)
    yield from _log(scrape)
    yield from _cluster(scrape.survey)
    yield from _partitions(scrape)
    yield from _changes(scrape)
    yield from _traffic(scrape)
    yield from _compaction(scrape)
    yield from _chores(scrape)
    yield from _requests(scrape)
    yield from _memory(scrape)
    yield from _admission(scrape)
    yield from _answers(scrape)
    yield from _refusals(scrape)
    yield from _disks(scrape)
    yield from _raft(scrape)
    yield from _groups(scrape)
    yield from _transactions(scrape)


def _node(scrape: Scrape) -> Iterator[Family]:
    config = scrape.node.config
    own = labels(version=__version__, node_id=config.node_id, roles=",".join(sorted(config.roles)))
    yield labelled("raftlog_node_info", "gauge", "This node; always 1.", [(own, 1)])
    ready = not scrape.node.unready_reasons()
    yield single("raftlog_node_ready", "gauge", "Whether this node is ready.", ready)
    yield single(
        "raftlog_node_is_controller", "gauge", "Whether this node is the active controller.", scrape.tells
    )
    name = "raftlog_event_loop_lag_seconds"
    text = "How late the event loop ran a timer of 0.02 s, since the first request to this HTTP API."
    yield histogram(name, text, [("", scrape.lag.seconds)])
    text = "How much of that it computed itself, rather than waiting for a disk or a core."
    yield histogram("raftlog_event_loop_own_lag_seconds", text, [("", scrape.lag.own_seconds)])
    name = "raftlog_process_idle_ratio"
    yield single(name, "gauge", "Share of time in which the process does not compute.", scrape.lag.idle)
    enabled = scrape.node.faults_enabled
    yield single("raftlog_faults_enabled", "gauge", "Whether it was started with --enable-faults.", enabled)
    active = [] if scrape.node.faults is None else scrape.node.faults.active()
    in_force = ((labels(fault=name_of(each)), 1) for each in active)
    yield labelled("raftlog_fault_active", "gauge", "A fault in force on this node; always 1.", in_force)


def _log(scrape: Scrape) -> Iterator[Family]:
    state = scrape.node.log_state()
    text = "Whether this node's log can be written."
    yield single("raftlog_log_writable", "gauge", text, not state.reason)
    text = "Lines of this node's log that could not be written."
    yield single("raftlog_log_lines_lost_total", "counter", text, state.lines_lost)
    if state.audit_file:
        text = "Whether the audit log's own file can be written; else its lines are in the node's log."
        yield single("raftlog_audit_file_writable", "gauge", text, not state.audit_reason)


def _cluster(found: Survey) -> Iterator[Family]:
    def gauge(name: str, text: str, value: int) -> Family:
        return single(f"raftlog_cluster_{name}", "gauge", f"{text}, as this node knows it.", value)

    yield gauge("brokers", "Brokers in service", len(found.active))
    yield gauge("brokers_fenced", "Brokers that are registered but not in service", len(found.fenced))
    yield gauge("controller_id", "The active controller, -1: none", found.image.controller_id)
    yield gauge("topics", "Topics", found.topics)
    yield gauge("partitions", "Partitions", found.partitions)
    yield gauge("partitions_leaderless", "Partitions without a leader", found.leaderless.count)
    yield gauge(
        "partitions_isr_lost", "Partitions whose last in-sync replica lost data", found.isr_lost.count
    )
    yield gauge(
        "partitions_under_replicated", "Partitions with a replica out of sync", found.under_replicated.count
    )
    yield gauge("partitions_under_min_isr", "Partitions that refuse acks=all", found.under_min_isr.count)
    yield gauge("partitions_at_min_isr", "Partitions without a replica to spare", found.at_min_isr.count)
    yield gauge(
        "partitions_not_preferred",
        "Partitions led by another than the preferred leader",
        found.not_preferred.count,
    )
    yield gauge("partitions_reassigning", "Partitions that are reassigned", found.reassigning.count)
    size_bytes = found.image.usage.size_bytes
    yield gauge("metadata_bytes", "Bytes of metadata, at most raftlog.metadata.max.bytes", size_bytes)


def _partitions(scrape: Scrape) -> Iterator[Family]:
    rows = scrape.rows
    yield single("raftlog_partitions", "gauge", "Replicas on this node.", len(rows))
    yield single("raftlog_partitions_led", "gauge", "Partitions that this node leads.", len(scrape.led))

    def gauge(name: str, text: str, field: str) -> Family:
        values = ((row.labels, int(getattr(row.facts, field))) for row in rows)
        return labelled(f"raftlog_partition_{name}", "gauge", f"{text} of a replica on this node.", values)

    yield gauge("is_leader", "Whether this node leads (1) or follows (0) the partition", "leads")
    yield gauge("log_start_offset", "First offset", "log_start_offset")
    yield gauge("high_watermark", "First offset that is not committed", "high_watermark")
    yield gauge("log_end_offset", "Next offset", "log_end_offset")
    yield gauge("size_bytes", "Bytes", "size_bytes")
    yield gauge("segments", "Segments", "segments")
    name = "raftlog_partition_last_stable_offset_lag"
    text = "Committed records of a partition led here that readers of committed transactions do not get yet."
    lag = ((row.labels, row.facts.high_watermark - row.facts.last_stable_offset) for row in scrape.led)
    yield labelled(name, "gauge", text, lag)
    name = "raftlog_partition_leader_epoch"
    values = ((row.labels, row.state.leader_epoch if row.state else None) for row in rows)
    yield labelled(name, "gauge", "Leader epoch of a partition with a replica here.", values)
    name = "raftlog_partition_isr_size"
    values = ((row.labels, len(row.state.isr) if row.state else None) for row in scrape.led)
    yield labelled(name, "gauge", "In-sync replicas of a partition led here.", values)


def _changes(scrape: Scrape) -> Iterator[Family]:
    if scrape.node.history is None:
        return
    counts = scrape.node.history.counts(scrape.node.config.node_id)

    def counter(name: str, text: str, value: int) -> Family:
        return single(f"raftlog_{name}_total", "counter", f"{text}, since this node's history begins.", value)

    yield counter("leaderships_gained", "Elections that this broker won", counts.leaderships_gained)
    yield counter(
        "unclean_elections", "Unclean elections, which may have lost records", counts.unclean_elections
    )
    yield counter("isr_shrinks", "ISRs of partitions led here that lost members", counts.isr_shrinks)
    yield counter("isr_expands", "ISRs of partitions led here that gained members", counts.isr_expands)


def _traffic(scrape: Scrape) -> Iterator[Family]:
    topics = list(scrape.facts.traffic().items())

    def counter(name: str, text: str, field: str) -> Family:
        values = ((labels(topic=topic), getattr(each, field)) for topic, each in topics)
        return labelled(f"raftlog_topic_{name}_total", "counter", text, values)

    yield counter("messages_in", "Records appended for producers.", "messages_in")
    yield counter("bytes_in", "Bytes of records appended for producers.", "bytes_in")
    yield counter(
        "messages_out",
        "Records sent to consumers, counted by offsets: those that compaction removed in between count too.",
        "messages_out",
    )
    yield counter("bytes_out", "Bytes of records sent to consumers.", "bytes_out")
    yield counter("replication_bytes_out", "Bytes of records sent to followers.", "replica_bytes_out")
    yield counter("produces", "Partitions that produce requests named.", "produces")
    yield counter("produces_failed", "Partitions of produce requests that were refused.", "failed_produces")
    yield counter("fetches", "Partitions that were answered to fetches.", "fetches")
    yield counter("fetches_failed", "Partitions of fetches that were refused.", "failed_fetches")
    name = "raftlog_follower_fetches_total"
    text = "Partitions of consumers' fetches that got records here while another broker led them."
    values = ((labels(topic=topic), each.follower_fetches) for topic, each in topics)
    yield labelled(name, "counter", text, values)


def _compaction(scrape: Scrape) -> Iterator[Family]:
    counts = scrape.facts.compaction()
    if counts is None:
        return

    def counter(name: str, text: str, value: float) -> Family:
        return single(f"raftlog_compaction{name}_total", "counter", text, value)

    yield counter("s", "Completed cleanings of compacted logs.", counts.cleanings)
    text = "Failed cleanings: damage, a disk error, or a batch that could not be rewritten."
    yield counter("s_failed", text, counts.failures)
    yield counter("_read_bytes", "Bytes of segments that were cleaned.", counts.bytes_before)
    yield counter("_written_bytes", "Bytes of the segments that replaced them.", counts.bytes_after)
    yield counter("_removed_records", "Records that cleanings removed.", counts.records_removed)
    yield counter("_seconds", "Time in which a log was being cleaned.", counts.seconds)


def _chores(scrape: Scrape) -> Iterator[Family]:
    counts = Counter(each.chore for each in scrape.facts.failures())
    name = "raftlog_chore_failing"
    text = "Logs, groups or transactional ids for which this recurring work failed the last time."
    failing = ((labels(chore=chore), count) for chore, count in sorted(counts.items()))
    yield labelled(name, "gauge", text, failing)
    if scrape.node.ages is not None:
        name = "raftlog_clock_jump_seconds"
        text = "How far the wall clock is ahead of the time that the node trusts. 0: it trusts its clock."
        yield single(name, "gauge", text, scrape.node.ages.jump_ms() / 1000)
        name = "raftlog_deletion_by_age_waiting"
        text = (
            "1: the clock is in doubt or not confirmed yet, so nothing is deleted for its age. 0: it is believed, or "
            "the node is a controller that deletes nothing."
        )
        waits = scrape.node.deletes_by_age() and scrape.node.ages.now_ms() == NOTHING_IS_OLD_MS
        yield single(name, "gauge", text, waits)


def _requests(scrape: Scrape) -> Iterator[Family]:
    counted = scrape.facts.connections()
    if counted is None:
        return
    requests = ((labels(api=api_name(key)), count) for key, count in list(counted.requests.items()))
    yield labelled("raftlog_requests_total", "counter", "Requests by API.", requests)
    seconds = ((labels(api=api_name(key)), each) for key, each in list(counted.latencies.items()))
    text = "From a request's last byte to its response, waiting for records or replicas included."
    yield histogram("raftlog_request_seconds", text, seconds)
    long = ((labels(api=api_name(key)), counted.long_turns.get(key, 0)) for key in list(counted.requests))
    text = (
        "Turns of the event loop that one request held for over 0.05 s, by API: each is a fault of this node."
    )
    yield labelled("raftlog_long_turns_total", "counter", text, long)
    throttled = by_name("quota", counted.throttled)
    text = "Responses with a throttle time, and connections delayed by a quota."
    yield labelled("raftlog_throttled_total", "counter", text, throttled)
    seconds_of = ((labels(quota=key), ms / 1000) for key, ms in counted.throttle_ms.items())
    text = "Throttle times in responses, and delays of connections."
    yield labelled("raftlog_throttle_seconds_total", "counter", text, seconds_of)
    yield single("raftlog_connections", "gauge", "Open connections.", counted.open_connections)
    name = "raftlog_connections_accepted_total"
    yield single(name, "counter", "Accepted connections.", counted.connections)
    name = "raftlog_connections_refused_total"
    yield single(name, "counter", "Connections beyond a limit.", counted.refused)
    name = "raftlog_connections_closed_total"
    closed = by_name("reason", {**counted.closed_by_broker, "idle": counted.idle_closed})
    yield labelled(name, "counter", "Connections that this node closed.", closed)
    name = "raftlog_failed_logins_total"
    failed = (
        (labels(mechanism=mechanism, reason=reason), count)
        for (mechanism, reason), count in list(counted.failed_logins.items())
    )
    yield labelled(name, "counter", "Logins that failed, by mechanism and reason.", failed)
    name = "raftlog_bytes_received_total"
    yield single(name, "counter", "Bytes from clients and brokers.", counted.bytes_received)
    name = "raftlog_bytes_sent_total"
    yield single(name, "counter", "Bytes to clients and brokers.", counted.bytes_sent)


def _memory(scrape: Scrape) -> Iterator[Family]:
    accounts = [(labels(account=each.name), each) for each in scrape.node.accounts()]
    used = ((own, each.used_bytes) for own, each in accounts)
    text = "Memory for what clients and brokers send and are sent, by purpose."
    yield labelled("raftlog_memory_used_bytes", "gauge", text, used)
    limits = ((own, each.limit_bytes) for own, each in accounts)
    text = "Limit beyond which requests wait or are refused."
    yield labelled("raftlog_memory_limit_bytes", "gauge", text, limits)
    most = ((own, each.most_bytes) for own, each in accounts)
    yield labelled("raftlog_memory_most_bytes", "gauge", "The most that was ever used of it.", most)
    full = ((own, each.times_full) for own, each in accounts)
    text = "How often the limit was reached."
    yield labelled("raftlog_memory_exhausted_total", "counter", text, full)


def _admission(scrape: Scrape) -> Iterator[Family]:
    admission = scrape.facts.admission()
    if admission is None:
        return
    kinds = (
        (labels(kind="client"), admission.clients),
        (labels(kind="broker"), admission.brokers),
        (labels(kind="unproven"), admission.in_hall),
    )
    text = "Connections by kind of peer; unproven: beyond the places of clients, perhaps a broker."
    yield labelled("raftlog_connections_by_kind", "gauge", text, kinds)
    name = "raftlog_connections_client_limit"
    text = "Most connections of clients: max.connections, or what files and memory allow."
    yield single(name, "gauge", text, admission.clients_most)
    name = "raftlog_connections_waiting_for_memory"
    yield single(
        name,
        "gauge",
        "Connections that wait for request memory.",
        admission.readers_waiting,
    )
    yield single("raftlog_fetch_sessions", "gauge", "Fetch sessions (KIP-227).", admission.fetch_sessions)
    name = "raftlog_fetch_sessions_evicted_total"
    yield single(
        name, "counter", "Fetch sessions that went for newer ones.", admission.fetch_sessions_evicted
    )


def _answers(scrape: Scrape) -> Iterator[Family]:
    answers = ((labels(status=status), count) for status, count in sorted(scrape.node.answers.items()))
    text = "Responses of the admin API. Status 499: the client disconnected before."
    yield labelled("raftlog_admin_answers_total", "counter", text, answers)


def _refusals(scrape: Scrape) -> Iterator[Family]:
    node, kafka = scrape.node, scrape.facts.audit()
    denials = [("http", operation, count) for operation, count in node.denials.items()]
    if kafka is not None:
        denials += [("kafka", _api_name(key), count) for key, count in kafka.denials.items()]
    yield labelled(
        "raftlog_admin_failed_logins_total",
        "counter",
        "Logins to this HTTP API that failed.",
        (
            (labels(mechanism=mechanism, reason=reason), count)
            for (mechanism, reason), count in sorted(node.failed_logins.items())
        ),
    )
    yield labelled(
        "raftlog_denials_total",
        "counter",
        "Requests that asked for what no rule allows, on Kafka's listeners and at this HTTP API.",
        ((labels(door=door, operation=each), count) for door, each, count in sorted(denials)),
    )


def _api_name(api_key: int) -> str:
    return APIS[api_key].name if api_key in APIS else str(api_key)


def _disks(scrape: Scrape) -> Iterator[Family]:
    directories = [(labels(path=each.path), each) for each in scrape.facts.directories()]
    online = ((own, int(each.online)) for own, each in directories)
    yield labelled("raftlog_log_directory_online", "gauge", "Whether a log directory is in service.", online)
    full = ((own, int(each.full)) for own, each in directories)
    text = "Whether a log directory has no room, so that this broker's leaderships go to others."
    yield labelled("raftlog_log_directory_full", "gauge", text, full)
    failed = len(scrape.facts.failed_replicas())
    text = "Replicas that follow no leader, since they would have to cut committed records for it."
    yield single("raftlog_failed_replicas", "gauge", text, failed)
    troubled = ((own, int(bool(each.trouble))) for own, each in directories)
    text = "Whether a log directory ran out of file descriptors in the last minute."
    yield labelled("raftlog_log_directory_refuses", "gauge", text, troubled)
    text = "Replicas of this node that could not be created yet, for example on a full disk."
    yield single("raftlog_replicas_not_created", "gauge", text, len(scrape.facts.refused_replicas()))
    seconds = ((own, each.sync_seconds) for own, each in directories)
    text = "How long a log directory's rounds of syncs took: what acks=all waits for on this disk."
    yield histogram("raftlog_log_sync_seconds", text, seconds)


def _raft(scrape: Scrape) -> Iterator[Family]:
    raft = scrape.facts.raft()
    if raft is None:
        return
    yield single("raftlog_raft_term", "gauge", "Term of the metadata quorum.", raft.term)
    yield single(
        "raftlog_raft_leader_id", "gauge", "Leader of the quorum, -1: none is known.", raft.leader_id
    )
    yield single("raftlog_raft_is_leader", "gauge", "Whether this node leads the quorum.", raft.leads)
    yield single("raftlog_raft_is_voter", "gauge", "Whether this node votes.", raft.votes)
    yield single("raftlog_raft_commit_index", "gauge", "Last entry known to be committed.", raft.commit_index)
    name = "raftlog_raft_end_index"
    yield single(
        name, "gauge", "Last entry of this voter's log.", raft.end_index if raft.end_index >= 0 else None
    )
    name = "raftlog_metadata_offset"
    yield single(name, "gauge", "Metadata records published here.", scrape.survey.image.offset)


def _groups(scrape: Scrape) -> Iterator[Family]:
    yield single("raftlog_groups", "gauge", "Groups that this node coordinates.", len(scrape.groups))
    text = "About what they take in memory; raftlog.group.max.bytes is the limit."
    yield single("raftlog_group_memory_bytes", "gauge", text, scrape.facts.group_bytes())
    name = "raftlog_group_members"
    members = ((labels(group=each.group_id, state=each.state), each.members) for each in scrape.groups)
    yield labelled(name, "gauge", "Members of a group coordinated here.", members)
    name = "raftlog_group_lag"
    text = "Committed records that a group coordinated here has not read, of partitions with a replica here."
    yield labelled(name, "gauge", text, lags(scrape, "group"))


def _transactions(scrape: Scrape) -> Iterator[Family]:
    facts = scrape.facts.transactions()
    if facts is None:
        return
    states = ((labels(state=state), count) for state, count in facts.ids.items())
    yield labelled(
        "raftlog_transactional_ids",
        "gauge",
        "Transactional ids that this node coordinates, by state.",
        states,
    )
    oldest = facts.oldest_open_ms
    open_s = 0.0 if oldest is None else max(0.0, (scrape.node.wall_clock_ms() - oldest) / 1000)
    name = "raftlog_transaction_oldest_open_seconds"
    yield single(name, "gauge", "Age of the oldest that is open or being ended here, 0: none is.", open_s)
    name = "raftlog_transaction_outcomes_untold"
    text = "Transactions decided here with markers not yet written to every partition."
    yield single(name, "gauge", text, facts.unfinished_outcomes)

    def counter(name: str, text: str, value: int) -> Family:
        return single(
            f"raftlog_transactions_{name}_total", "counter", f"Transactions coordinated here {text}.", value
        )

    yield counter("committed", "that were committed", facts.committed)
    yield counter("aborted", "that were aborted, for whatever reason", facts.aborted)
    yield counter("timed_out", "that took too long and were aborted", facts.timed_out)
    yield counter("fenced", "that were aborted because another producer took the id", facts.fenced)


def lags(scrape: Scrape, group_label: str) -> Iterator[tuple[str, int | None]]:
    """Yield (labels, lag) of each committed position; None where its partition has no replica here."""
    for group, topic, partition, lag in scrape.lags():
        yield labels(**{group_label: group, "topic": topic, "partition": partition}), lag


def api_name(key: int) -> str:
    """Return an API's name as Kafka has it."""
    return "".join(map(str.capitalize, APIS[key].name.split("_"))) if key in APIS else f"api_{key}"
