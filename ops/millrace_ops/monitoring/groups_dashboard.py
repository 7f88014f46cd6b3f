"""The dashboard of groups and transactions: who is behind, who rebalances, which transaction stays open."""

from __future__ import annotations

from millrace_ops.monitoring.panels import HERE, RATE, Dashboard, Section, line, lines, rate

OFFSETS = f"max by (group, topic, partition) (millrace_group_offset{{{HERE}}})"
ENDS = f"max by (topic, partition) (millrace_log_end_offset{{{HERE}}})"
LAG = f"clamp_min({ENDS} - on (topic, partition) group_right () {OFFSETS}, 0)"

LAGS = Section(
    "Lag",
    (
        line("Lag by group", "none", f"topk(20, sum by (group) ({LAG}))", "{{group}}"),
        line("Lag by group and topic", "none", f"topk(20, sum by (group, topic) ({LAG}))", "{{group}} {{topic}}"),
        line("Partitions that lag most", "none", f"topk(20, {LAG})", "{{group}} {{topic}} {{partition}}", kind="table"),
        line(
            "Records that groups commit",
            "cps",
            f"topk(20, sum by (group) (clamp_min(deriv(millrace_group_offset{{{HERE}}}[{RATE}]), 0)))",
            "{{group}}",
        ),
    ),
)
GROUPS = Section(
    "Groups",
    (
        line("Groups, by state", "none", f"sum by (state) (millrace_groups{{{HERE}}})", "{{state}}"),
        line("Members", "none", f"sum by (type) (millrace_group_members{{{HERE}}})", "{{type}}"),
        line("Rebalances", "cps", f"sum by (type) ({rate('millrace_group_rebalances_total')})", "{{type}}"),
        lines(
            "Committed offsets",
            "cps",
            (f"sum({rate('millrace_group_offsets_committed_total')})", "committed"),
            (f"sum({rate('millrace_group_offsets_expired_total')})", "expired"),
        ),
        line(
            "Partitions that coordinators still read",
            "none",
            f"millrace_coordinator_partitions_to_load{{{HERE}}}",
            "{{instance}}",
        ),
        lines(
            "Offsets that are kept, and those that are not told",
            "none",
            (f"sum(millrace_group_offsets{{{HERE}}})", "kept"),
            (f"sum(millrace_group_offsets_left_out{{{HERE}}})", "not told"),
        ),
    ),
)
TRANSACTIONS = Section(
    "Transactions",
    (
        line("Transactional ids, by state", "none", f"sum by (state) (millrace_transactions{{{HERE}}})", "{{state}}"),
        lines(
            "Ends of transactions",
            "cps",
            (f"sum({rate('millrace_transaction_committed_total')})", "committed"),
            (f"sum({rate('millrace_transaction_aborted_total')})", "aborted"),
            (f"sum({rate('millrace_transaction_timed_out_total')})", "of these by timeout"),
            (f"sum({rate('millrace_transaction_fenced_total')})", "fenced producers"),
        ),
        line(
            "Age of the oldest open transaction", "s", f"max(millrace_transaction_longest_open_seconds{{{HERE}}})", ""
        ),
        line(
            "Records that wait for transactions to end",
            "none",
            f"topk(10, max by (topic, partition) (millrace_last_stable_offset_lag{{{HERE}}}))",
            "{{topic}} {{partition}}",
        ),
        line("Markers that are not written yet", "none", f"sum(millrace_transaction_markers_pending{{{HERE}}})", ""),
    ),
)
FETCHES = Section(
    "Fetches",
    (
        line("Fetches, by kind", "cps", f"sum by (kind) ({rate('millrace_fetches_total')})", "{{kind}}"),
        line("Fetch sessions", "none", f"millrace_fetch_sessions{{{HERE}}}", "{{instance}}"),
    ),
)
GROUPS_DASHBOARD = Dashboard(
    "millrace-groups", "Millrace: groups and transactions", "millrace_build_info", (LAGS, GROUPS, TRANSACTIONS, FETCHES)
)
