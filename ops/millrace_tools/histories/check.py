"""Judges a history: finds every anomaly that it shows, in time that grows with its length (docs/histories.md)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from millrace_tools.histories.events import Operation, read_history
from millrace_tools.histories.finding import Anomaly, FoundAnomaly
from millrace_tools.histories.logs import log_findings, logs_of
from millrace_tools.histories.orders import poll_findings, real_time_findings, send_findings
from millrace_tools.histories.ownership import ownership_findings
from millrace_tools.histories.transactions import cycle_findings, intermediate_findings

__all__ = ["Anomaly", "FoundAnomaly", "check", "read_history"]


def check(operations: Sequence[Operation], *, allowed: Collection[Anomaly] = ()) -> list[FoundAnomaly]:
    """Returns the anomalies of a history, without those that the tested system allows.

    Args:
        operations: In the order of their beginnings, with distinct indexes.
        allowed: Kinds to pass over; `Anomaly.WRITE_CYCLE` for transactions that were open at once.
    """
    logs = logs_of(operations)
    findings = [finding for log in logs.values() for finding in log_findings(log)]
    findings += poll_findings(operations, logs)
    findings += send_findings(operations)
    findings += real_time_findings(operations)
    findings += ownership_findings(operations)
    findings += intermediate_findings(operations, logs)
    findings += cycle_findings(operations, logs, write_cycles_allowed=Anomaly.WRITE_CYCLE in allowed)
    return [finding for finding in findings if finding.anomaly not in allowed]
