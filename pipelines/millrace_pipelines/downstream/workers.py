"""A run of a downstream job: several worker processes that share the topic's partitions, and what they did together.

    run_workers ─┬─ worker 1 ─ ConsumerConnector ─┐
                 ├─ worker 2 ─ ConsumerConnector ─┼─ one output
                 └─ …                             ┘

Where a worker is killed or fails, the others take over its partitions after its session timeout. The run succeeds if
the output has all that the topic had when the run began, or if its time is over. Runs of the same job at the same time
share the partitions in the same way. The workers end with the process that started them, however that ends.

Without a ZooKeeper there is no group, and each worker is given partitions of its own; runs at the same time repeat one
another's work, and the output takes each record once.

A worker's one argument is an `Assignment` in JSON. To the stdout that it was started with it writes a `Line` for each
commit, with `version` and `ranges`, and one as its last, with `is_complete` or with `error` and `retriable`.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from millrace.clock import Clock
from millrace.fs import FileSystem
from millrace.lifeline import cut_lifeline, start_with_lifeline
from millrace_pipelines.downstream.consume import RunOptions, prepare
from millrace_pipelines.downstream.job import JobError, MicroBatchJob, WorkersFailedError
from millrace_pipelines.downstream.output import ProcessedRange
from millrace_pipelines.machine import CLOCK, DISK

GRACE_S = 60.0


class Assignment(TypedDict):
    """The JSON with which a worker process starts; `options` are the fields of `RunOptions`."""

    job: str
    options: dict[str, Any]
    targets: dict[str, int]


class Line(TypedDict, total=False):
    """One line of JSON by which a worker reports a commit, its end or an error."""

    version: int
    ranges: list[tuple[int, int, int, int]]
    is_complete: bool
    error: str
    retriable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The result of one run of a job.

    Attributes:
        offsets: The range of each partition that was processed meanwhile, by this run's workers or by others.
        records: The records that this run's workers reported as committed; a killed worker may have reported one
            commit less.
        batches: The commits that they reported.
        seconds: How long the run took.
        lag: The offsets that the output lacks at the run's end, of those that the topic had at its beginning.
        workers: The processes that were started.
        failures: Why workers ended before their time.
    """

    offsets: tuple[ProcessedRange, ...]
    records: int
    batches: int
    seconds: float
    lag: int
    workers: int
    failures: tuple[str, ...]


OnLine = Callable[[int, Line], None]


def run_workers(
    job: MicroBatchJob,
    options: RunOptions,
    *,
    workers: int = 1,
    on_line: OnLine = lambda _number, _line: None,
    fs: FileSystem = DISK,
    clock: Clock = CLOCK,
) -> RunReport:
    """Processes a topic up to where it ends now, in several processes; starts none where there is nothing to do.

    Args:
        job: The job, an attribute of a module that the processes can import.
        options: Where and how long.
        workers: The number of processes.
        on_line: Called with a worker's number, from 0, and each line that it reports.
        fs: The disk of the output.
        clock: The time.

    Raises:
        JobError: A worker failed in a way that no repetition mends, and the output lacks records.
        WorkersFailedError: All workers ended otherwise, and the output lacks records.
        MillraceError: The topic or the output can't be read.
    """
    began_ms = clock.monotonic_ms()
    output, targets = prepare(job, options, fs, clock)
    before = output.next_offsets(targets)
    due = any(before[partition] < target for partition, target in targets.items())
    team = _Team(job, options, targets, workers if due else 0, on_line)
    team.run(options.max_seconds + GRACE_S)
    after = output.next_offsets(targets)
    lag = sum(max(0, target - after[partition]) for partition, target in targets.items())
    if lag and (team.is_hopeless or (team.failures and not team.is_out_of_time)):
        text = f"{job.name}: {'; '.join(team.failures)}"
        raise JobError(text) if team.is_hopeless else WorkersFailedError(text)
    return RunReport(
        offsets=tuple(
            ProcessedRange(one, before[one], after[one]) for one in sorted(targets) if after[one] > before[one]
        ),
        records=team.records,
        batches=team.batches,
        seconds=(clock.monotonic_ms() - began_ms) / 1000,
        lag=lag,
        workers=team.size,
        failures=tuple(team.failures),
    )


def shares(targets: Mapping[int, int], size: int) -> list[dict[int, int]]:
    """Returns the targets of each of so many workers, which share the partitions out; none is without any."""
    partitions = sorted(targets)
    return [{one: targets[one] for one in partitions[number::size]} for number in range(min(size, len(partitions)))]


def start_worker(job: MicroBatchJob, options: RunOptions, targets: Mapping[int, int]) -> subprocess.Popen[bytes]:
    """Starts a worker process with this process's import path; it writes its report, lines of JSON, to its stdout."""
    assignment: Assignment = {
        "job": job.reference,
        "options": asdict(options),
        "targets": {str(partition): offset for partition, offset in targets.items()},
    }
    command = [sys.executable, "-m", "millrace_pipelines.downstream", json.dumps(assignment)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return start_with_lifeline(command, stdout=subprocess.PIPE, environment=environment)


def records_in(line: Line) -> int:
    """Returns how many records were processed by the commit that a line reports; 0 for another line."""
    return sum(records for *_, records in line.get("ranges", ()))


class _Team:
    """The worker processes of one run, and what they have reported."""

    def __init__(
        self, job: MicroBatchJob, options: RunOptions, targets: Mapping[int, int], size: int, on_line: OnLine
    ) -> None:
        self._targets = [targets] * size if options.zookeeper else shares(targets, size)
        self.size = len(self._targets)
        self.records = self.batches = 0
        self.failures: list[str] = []
        self.is_hopeless = self.is_out_of_time = False
        self._job, self._options = job, options
        self._on_line = on_line
        self._said: queue.Queue[tuple[int, Line | None]] = queue.Queue()

    def run(self, timeout_s: float) -> None:
        """Starts the workers and waits for their end; kills those that still run after `timeout_s`."""
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for number in range(self.size):
                processes.append(start_worker(self._job, self._options, self._targets[number]))
                threading.Thread(target=self._read, args=(number, processes[-1]), daemon=True).start()
            self._follow(processes, timeout_s)
        finally:
            _cut(processes)
            for process in processes:
                process.wait()

    def _follow(self, processes: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> None:
        deadline = threading.Timer(timeout_s, _cut, args=(processes,))
        deadline.daemon = True
        deadline.start()
        try:
            self._hear(processes)
        finally:
            deadline.cancel()

    def _hear(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        """Reads the lines of JSON that workers report, until the last worker has ended."""
        left, ended = len(processes), set[int]()
        while left:
            number, line = self._said.get()
            if line is None:
                left -= 1
                if number not in ended:
                    self.failures.append(f"worker {number} ended with status {processes[number].wait()}")
                continue
            self._note(number, line)
            if "is_complete" in line or "error" in line:
                ended.add(number)

    def _note(self, number: int, line: Line) -> None:
        self._on_line(number, line)
        if "ranges" in line:
            self.batches += 1
            self.records += records_in(line)
        if "error" in line:
            self.failures.append(f"worker {number}: {line['error']}")
            self.is_hopeless = self.is_hopeless or not line["retriable"]
        self.is_out_of_time = self.is_out_of_time or line.get("is_complete") is False

    def _read(self, number: int, process: subprocess.Popen[bytes]) -> None:
        with process.stdout or open(os.devnull, "rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    self._said.put((number, json.loads(line)))
        self._said.put((number, None))


def _cut(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        cut_lifeline(process)
