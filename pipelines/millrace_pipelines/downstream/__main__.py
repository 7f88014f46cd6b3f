"""A worker of a downstream job as a process: `python -m millrace_pipelines.downstream ASSIGNMENT`.

What the job prints goes to stderr, since stdout is for the report (`workers`).
"""

from __future__ import annotations

import json
import logging
import os
import sys

from millrace.client.answers import is_retriable
from millrace.errors import MillraceError
from millrace_pipelines.downstream.consume import RunOptions, consume
from millrace_pipelines.downstream.job import find_job
from millrace_pipelines.downstream.output import Committed
from millrace_pipelines.downstream.workers import Assignment, Line


def work(assignment: Assignment, report_fd: int) -> int:
    """Runs a worker: consumes the job's topic, reports in lines of JSON to `report_fd`, and returns the exit status."""

    def tell(line: Line) -> None:
        os.write(report_fd, (json.dumps(line) + "\n").encode())

    def committed(what: Committed) -> None:
        if what.version is not None:
            tell({"version": what.version, "ranges": [part[:4] for part in what.ranges]})

    targets = {int(partition): offset for partition, offset in assignment["targets"].items()}
    try:
        job = find_job(assignment["job"])
        tell({"is_complete": consume(job, RunOptions(**assignment["options"]), committed, targets=targets)})
    except MillraceError as error:
        tell({"error": str(error), "retriable": is_retriable(error)})
        return 1
    return 0


def main() -> None:
    """Keeps stdout for the report alone, by printing all else to stderr, and runs the worker that argv[1] describes."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    report_fd = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.exit(work(json.loads(sys.argv[1]), report_fd))


if __name__ == "__main__":
    main()
