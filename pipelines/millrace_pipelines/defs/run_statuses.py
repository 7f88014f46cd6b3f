"""The statuses of runs, by whether a run has ended."""

from __future__ import annotations

import dagster as dg

FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
UNFINISHED = [status for status in dg.DagsterRunStatus if status not in FINISHED]
