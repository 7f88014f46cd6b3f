"""The dashboard of brokers: is all well, what do clients do, where does the time go, how long do the disks last."""

from __future__ import annotations

from millrace_ops.monitoring.panels import HERE, Dashboard, Panel, Section, line, lines, quantile, rate

FREE_SHARE = f"millrace_log_directory_free_bytes{{{HERE}}} / millrace_log_directory_total_bytes{{{HERE}}}"

AHEAD = f"millrace_log_timestamp_ahead_seconds{{{HERE}}}"


def _stat(title: str, query: str, limit: float | None = None, unit: str = "none") -> Panel:
    return Panel(title, unit, ((query, ""),), "stat", limit)


def _sum(metric: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) ({rate(metric)})" if by else f"sum({rate(metric)})"


def _top_topics(metric: str) -> str:
    return f"topk(10, {_sum(metric, 'topic')})"


WELL = Section(
    "Is all well",
    (
        _stat("Brokers", f"count(millrace_build_info{{{HERE}}})"),
        _stat("Controllers", f"sum(millrace_active_controller_count{{{HERE}}})"),
        _stat("Partitions without a leader", f"sum(millrace_offline_partitions_count{{{HERE}}})", 1),
        _stat("Partitions that refuse acks=all", f"sum(millrace_under_min_isr_partition_count{{{HERE}}})", 1),
        _stat("Partitions that lack a replica", f"sum(millrace_under_replicated_partitions{{{HERE}}})", 1),
        _stat("Data directories offline", f"sum(millrace_offline_log_directory_count{{{HERE}}})", 1),
        _stat("Least share of a disk that is free", f"min({FREE_SHARE})", unit="percentunit"),
        _stat("Sessions with ZooKeeper", f"sum(millrace_zookeeper_session_up{{{HERE}}})"),
    ),
)
TRAFFIC = Section(
    "Traffic",
    (
        line("Records in, by topic", "cps", _top_topics("millrace_topic_records_in_total"), "{{topic}}"),
        line("Bytes in, by topic", "Bps", _top_topics("millrace_topic_bytes_in_total"), "{{topic}}"),
        line("Bytes out, by topic", "Bps", _top_topics("millrace_topic_bytes_out_total"), "{{topic}}"),
        lines(
            "Bytes between replicas",
            "Bps",
            (_sum("millrace_topic_replicated_bytes_in_total", "instance"), "in, {{instance}}"),
            (_sum("millrace_topic_replicated_bytes_out_total", "instance"), "out, {{instance}}"),
        ),
    ),
)
REQUESTS = Section(
    "Requests",
    (
        line("Requests, by API", "reqps", _sum("millrace_requests_total", "api"), "{{api}}"),
        line(
            "Error codes in replies",
            "cps",
            f"{_sum('millrace_request_errors_total', 'api', 'error')} or vector(0)",
            "{{api}} {{error}}",
        ),
        line(
            "Time of a request, 99 %, by API", "s", quantile(0.99, "millrace_request_total_seconds", "api"), "{{api}}"
        ),
        Panel(
            "Time of a write, 99 %, by phase",
            "s",
            tuple(
                (quantile(0.99, f"millrace_request_{phase}_seconds", labels=f'{HERE}, api="produce"'), phase)
                for phase in ("queue", "local", "remote", "send")
            ),
        ),
        line(
            "Share of the time in handlers",
            "percentunit",
            _sum("millrace_request_local_seconds_sum", "instance"),
            "{{instance}}",
        ),
        line(
            "Delay of the event loop, 99 %",
            "s",
            quantile(0.99, "millrace_event_loop_delay_seconds", "instance"),
            "{{instance}}",
        ),
        lines(
            "Connections",
            "none",
            (f"millrace_connections{{{HERE}}}", "open, {{instance}}"),
            (f"millrace_throttled_connections{{{HERE}}}", "throttled, {{instance}}"),
        ),
        line("Memory of requests and replies", "bytes", f"millrace_bytes_in_flight{{{HERE}}}", "{{instance}}"),
        line("Requests that wait for records", "none", f"millrace_purgatory_size{{{HERE}}}", "{{instance}}"),
    ),
)
DISKS = Section(
    "Disks",
    (
        line("Share of the disk that is free", "percentunit", FREE_SHARE, "{{instance}} {{directory}}"),
        line(
            "Time of a flush, 99 %",
            "s",
            quantile(0.99, "millrace_log_flush_seconds", "instance", "directory"),
            "{{instance}} {{directory}}",
        ),
        line("Size of topics", "bytes", f"topk(10, sum by (topic) (millrace_log_size_bytes{{{HERE}}}))", "{{topic}}"),
        lines(
            "What maintenance removes",
            "Bps",
            (_sum("millrace_log_retention_removed_bytes_total"), "retention"),
            (_sum("millrace_log_compaction_removed_bytes_total"), "compaction"),
        ),
        line("Time in compaction", "percentunit", _sum("millrace_log_compaction_seconds_sum"), ""),
        line(
            "Time to open all logs at the last start", "s", f"millrace_log_recovery_seconds{{{HERE}}}", "{{instance}}"
        ),
    ),
)
CLUSTER = Section(
    "Cluster",
    (
        line("Partitions led", "none", f"millrace_leader_count{{{HERE}}}", "{{instance}}"),
        line("Partitions led or followed", "none", f"millrace_partition_count{{{HERE}}}", "{{instance}}"),
        lines(
            "Replicas that leave and join those in sync",
            "cps",
            (_sum("millrace_isr_shrinks_total"), "leave"),
            (_sum("millrace_isr_expands_total"), "join"),
        ),
        line("Lag of followers", "none", f"millrace_replica_fetcher_max_lag{{{HERE}}}", "{{instance}}"),
        lines(
            "Leaders that took over",
            "cps",
            (_sum("millrace_leader_elections_total"), "in sync or not"),
            (_sum("millrace_unclean_leader_elections_total"), "not in sync"),
        ),
    ),
)
PROCESS = Section(
    "Process",
    (
        line("Processor time", "percentunit", rate("process_cpu_seconds_total"), "{{instance}}"),
        line("Memory", "bytes", f"process_resident_memory_bytes{{{HERE}}}", "{{instance}}"),
        line(
            "Share of the descriptors that are open",
            "percentunit",
            f"process_open_fds{{{HERE}}} / process_max_fds{{{HERE}}}",
            "{{instance}}",
        ),
        line(
            "Clock ahead of Prometheus' clock",
            "s",
            f"millrace_clock_seconds{{{HERE}}} - timestamp(millrace_clock_seconds{{{HERE}}})",
            "{{instance}}",
            minimum=None,
        ),
        line(
            "Records ahead of the clock",
            "s",
            f"topk(10, max by (topic, partition) ({AHEAD})) or vector(0)",
            "{{topic}} {{partition}}",
        ),
        line("Versions", "none", f"millrace_build_info{{{HERE}}}", "", kind="table"),
    ),
)
BROKER = Dashboard(
    "millrace-broker",
    "Millrace: brokers",
    "millrace_build_info",
    (WELL, TRAFFIC, REQUESTS, DISKS, CLUSTER, PROCESS),
)
