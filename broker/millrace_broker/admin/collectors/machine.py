"""The metrics of the process, its clock, its disks and its session with ZooKeeper, and of the work on the disks.

They are collected on a worker thread, as a disk may keep them waiting.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from prometheus_client import ProcessCollector

from millrace.clock import Clock
from millrace.version import __version__
from millrace_broker.admin.collectors.families import Family, counter, counters, gauge, gauges, histograms
from millrace_broker.admin.health import Facts
from millrace_broker.metrics import ClockCounts, Durations, MaintenanceCounts
from millrace_broker.storage import DirHealth, ScrubProgress

DIRECTORY = ["directory"]
SCRUB_COUNTERS = (  # name, text, field of ScrubProgress
    ("log_scrub_bytes", "Bytes of logs that the scrubber has checked.", "all_bytes"),
    ("log_scrub_segments", "Segments that the scrubber has checked.", "all_segments"),
    ("log_scrub_rounds", "Rounds over all logs that the scrubber has completed.", "all_rounds"),
    ("log_scrub_findings", "Damage that the scrubber was the first to meet.", "all_findings"),
    ("log_scrub_failures", "Checks of a segment that failed, and are made again.", "all_failures"),
)


class Machine(NamedTuple):
    """The sources of the metrics of a broker's process and disks; a call of `facts` may wait for a disk."""

    facts: Callable[[], Facts]
    folders: Sequence[DirHealth]
    maintenance: MaintenanceCounts
    loop_delays: Durations
    clock: Clock
    clock_counts: ClockCounts
    has_zookeeper: bool
    scrubs: Callable[[], Sequence[ScrubProgress]]


class MachineCollector:
    """The metrics of the process, its clock, its disks and their maintenance, and its session with ZooKeeper."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterable[Family]:
        """Yields the version, the process's metrics, and those of ZooKeeper, disks, event loop and clock."""
        build = {(__version__, platform.python_version()): 1.0}
        yield gauges("build_info", "1, with the versions of Millrace and Python.", ["version", "python"], build)
        yield from self._process.collect()
        facts = self._machine.facts()
        if self._machine.has_zookeeper:
            text = "1 while the session with ZooKeeper is whole."
            yield gauge("zookeeper_session_up", text, facts.zookeeper_trouble is None)
        text = "Partitions that coordinators have not read yet."
        yield gauge("coordinator_partitions_to_load", text, facts.loading_partitions)
        failures = {(name,): float(times) for name, times in facts.failed_changes.items()}
        text = "Changes of the cluster that a part of the broker failed to act upon."
        yield counters("metadata_apply_failures", text, ["listener"], failures)
        yield from self._disks(facts)
        delays = {(): self._machine.loop_delays}
        yield histograms("event_loop_delay_seconds", "How late timers of the event loop fire.", [], delays)
        yield from self._clock()
        yield from self._maintenance()
        yield from self._scrubbing()

    def _clock(self) -> Iterable[Family]:
        counts = self._machine.clock_counts
        text = "The machine's clock when this was told, in seconds since the epoch."
        yield gauge("clock_seconds", text, self._machine.clock.now_ms() / 1000)
        yield counter("clock_steps", "Times that the machine's clock was set by more than a second.", counts.steps)
        text = "By how much the clock was set since the start, all steps together; back is negative."
        yield gauge("clock_stepped_seconds", text, counts.stepped_s)

    def _disks(self, facts: Facts) -> Iterable[Family]:
        room = [(each.path, each.free_bytes, each.total_bytes) for each in facts.folders]
        free = {(path,): free for path, free, _ in room if free is not None}
        yield gauges("log_directory_free_bytes", "Bytes that a data directory has room for.", DIRECTORY, free)
        total = {(path,): total for path, _, total in room if total is not None}
        yield gauges("log_directory_total_bytes", "Bytes of a data directory's disk.", DIRECTORY, total)
        folders = {(each.path,): each for each in self._machine.folders}
        online = {path: float(each.reason is None) for path, each in folders.items()}
        yield gauges("log_directory_online", "1 while a data directory has not failed.", DIRECTORY, online)
        refusals = {path: each.refusals for path, each in folders.items()}
        text = "Appends that found no room in a data directory."
        yield counters("log_directory_refused_appends", text, DIRECTORY, refusals)
        damaged = {(path,): float(len(ranges)) for path, ranges in facts.damage.items()}
        text = "Ranges of logs that are damaged or missing, and set aside."
        yield gauges("log_directory_damaged_ranges", text, DIRECTORY, damaged)
        flushes = {path: each.flushes for path, each in folders.items()}
        yield histograms("log_flush_seconds", "Of a log to a data directory.", DIRECTORY, flushes)

    def _maintenance(self) -> Iterable[Family]:
        counts = self._machine.maintenance
        yield gauge("log_recovery_seconds", "Time in which all logs were opened at the start.", counts.recovery_s)
        text = "Segments that were walked at the start, as the last shutdown had not synced them."
        yield gauge("log_recovered_segments", text, counts.recovered_segments)
        yield gauge("log_recovery_truncated_bytes", "Bytes that were cut off at the start.", counts.truncated_bytes)
        text = "Of the compactions that began together."
        yield histograms("log_compaction_seconds", text, [], {(): counts.compactions})
        text = "Bytes by which compaction has made logs smaller."
        yield counter("log_compaction_removed_bytes", text, counts.compaction_removed_bytes)
        yield counter("log_compaction_failures", "Compactions of a log that failed.", counts.compaction_failures)
        text = "Damaged ranges of logs that batches of other replicas have filled."
        yield counter("log_healed_ranges", text, counts.healed_ranges)
        yield counter("log_healed_bytes", "Bytes of batches that have filled damaged ranges.", counts.healed_bytes)
        yield counter(
            "log_retention_removed_bytes", "Bytes that retention has deleted.", counts.retention_removed_bytes
        )

    def _scrubbing(self) -> Iterable[Family]:
        scrubs = {(one.directory,): one for one in self._machine.scrubs()}
        for name, text, field in SCRUB_COUNTERS:
            yield counters(name, text, DIRECTORY, {path: getattr(one, field) for path, one in scrubs.items()})
        on = {path: one for path, one in scrubs.items() if one.bytes_per_second}
        text = "Bytes that the scrubber's current round has still to check."
        left = {path: float(one.total_bytes - one.checked_bytes) for path, one in on.items()}
        yield gauges("log_scrub_remaining_bytes", text, DIRECTORY, left)
        text = "Seconds since the last complete round of the scrubber began, or the first one: all was checked since."
        now_ms = self._machine.clock.now_ms()
        ages = {path: (now_ms - since_ms) / 1000 for path, one in on.items() if (since_ms := checked_since_ms(one))}
        yield gauges("log_scrub_age_seconds", text, DIRECTORY, ages)
        text = "Seconds after which the scrubber is to check all again."
        intervals = {path: one.interval_ms / 1000 for path, one in on.items()}
        yield gauges("log_scrub_interval_seconds", text, DIRECTORY, intervals)


def checked_since_ms(scrub: ScrubProgress) -> int | None:
    """Returns when the last complete round began; that of the first one until it is complete, None before it."""
    return scrub.round_started_ms if scrub.last_started_ms is None else scrub.last_started_ms
