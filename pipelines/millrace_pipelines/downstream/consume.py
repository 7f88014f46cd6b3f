"""One worker of a downstream job: a member of its group that takes records until the output has what was there.

    claim        a partition begins at the output's offset, whatever the group's says
    take         records, until a bound of the job, or until no more come
    commit       rows and offsets, in the output
    follow       the group's offsets in ZooKeeper

A crash at any point leaves the output's offsets, at which the next owner begins. A worker that is replaced commits what
it has taken, if it comes first: whoever owns a partition, the output takes each record once. The worker ends when the
output has, of all partitions, what the topic had when the run began: as long as one worker lives, it takes over what
the others leave.

Where no ZooKeeper is named, as beside a Kafka without one, there is no group: a worker processes the partitions that it
has targets for, and its run shares them out. What a killed worker leaves is for the next run.

Before, the log tells of the output's offsets whether records are lost; and at the end, where nothing is left of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from millrace.client.consumer import ConsumerConnector, ConsumerStream, ConsumerTimeoutError, Message, Partition
from millrace.client.damaged_batches import is_damage
from millrace.clock import Clock
from millrace.errors import MillraceError, OffsetOutOfRangeError
from millrace.fs import FileSystem
from millrace.records.damage import Rules
from millrace.records.intervals import Interval
from millrace.records.record import Record, read_records
from millrace.security.client_config import SecuritySource, read_client_security
from millrace_pipelines.downstream.job import MicroBatchJob, Pending
from millrace_pipelines.downstream.output import RETENTION, Committed, Output, ProcessedRange, again_when_stale
from millrace_pipelines.machine import CLOCK, DISK
from millrace_pipelines.spark.brokers import (
    Brokers,
    LogOffsets,
    TopicSource,
    brokers_of,
    check_ends,
    describe_topic,
    log_offsets,
)
from millrace_pipelines.spark.errors import LogTruncatedError, OffsetsLostError
from millrace_pipelines.warehouse.errors import StaleLedgerError

logger = logging.getLogger(__name__)

IDLE_MS = 200
BACKOFF_MS = 500
DEFAULT_SESSION_TIMEOUT_MS = 6_000
CONNECTION_TIMEOUT_MS = 30_000


def check_log(
    job: MicroBatchJob, next_offsets: Mapping[int, int], log: Mapping[int, LogOffsets], *, accept_lost_offsets: bool
) -> list[ProcessedRange]:
    """Returns the ranges that retention deleted before the output had processed them, if `accept_lost_offsets`.

    Raises:
        OffsetsLostError: There are such ranges, and `accept_lost_offsets` is not set.
        LogTruncatedError: A log ends below the offsets that the output has processed.
    """
    for partition, offset in next_offsets.items():
        if offset > log[partition].log_end:
            raise LogTruncatedError(
                f"topic {job.topic}: partition {partition} ends at offset {log[partition].log_end}, and {job.name} has "
                f"processed offsets up to {offset - 1}; give the job another folder, and it processes the topic again"
            )
    lost = [
        ProcessedRange(partition, offset, log[partition].start_offset, reason=RETENTION)
        for partition, offset in sorted(next_offsets.items())
        if log[partition].start_offset > offset
    ]
    if lost and not accept_lost_offsets:
        ranges = ", ".join(f"partition {part.partition}: {part.from_offset}-{part.until_offset - 1}" for part in lost)
        raise OffsetsLostError(
            f"topic {job.topic}: retention deleted offsets that {job.name} had not processed ({ranges}); "
            "accept_lost_offsets goes on without them and says so in the output's history"
        )
    return lost


def is_without_records(
    brokers: Brokers, topic: str, partition: int, from_offset: int, until_offset: int, *, accept_lost_offsets: bool
) -> bool:
    """Returns whether a range has no record: only transaction markers, aborted records and offsets that are compacted.

    With `accept_lost_offsets`, records that are lost in damaged batches don't count.

    Raises:
        RecordError: Batches can't be read, or a log that is not compacted has lost some of the offsets, and that is not
            accepted.
    """
    offset = from_offset
    while offset < until_offset:
        part = Interval(offset, until_offset)
        records, offset = first_answer(brokers, topic, partition, part, accept_lost_offsets=accept_lost_offsets)
        if records or offset == part.from_offset:
            return False
    return True


def first_answer(
    brokers: Brokers, topic: str, partition: int, part: Interval, *, accept_lost_offsets: bool
) -> tuple[list[Record], int]:
    """Fetches once from the beginning of `part`; returns the records that lie in it, and the offset reached.

    Raises RecordError as `is_without_records` does.
    """
    reached, records = part.from_offset, list[Record]()
    try:
        for batch in brokers.batches(topic, partition, reached, accept_missing_offsets=accept_lost_offsets):
            records += [record for record in batch.records() if record.offset in range(*part)]
            reached = batch.header.next_offset
    except MillraceError as error:
        if not (accept_lost_offsets and is_damage(error)):
            raise
        if not records:
            rules = Rules(read_records, partial(brokers.check_gap, topic, partition))
            found, reached = brokers.damaged_batches(topic, partition, rules).read_on(part, error)
            records = list(found)
    return records, reached


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The addresses of the cluster and the output for a run, and how long it may take.

    Attributes:
        zookeeper: `HOST:PORT[,HOST:PORT…][/chroot]` of the brokers, where the group's members meet; "" for none.
        bootstrap: `HOST:PORT` of a broker.
        client_config: The file with Kafka's client properties of security, or env:NAME.
        output: The folder or bucket of the output's table.
        group: The group's name; the job's by default.
        max_seconds: After how long a worker ends although there is more.
        accept_lost_offsets: Whether the job goes on behind offsets that retention deleted before it had them.
        session_timeout_ms: How long a worker may be silent before its partitions go to the others.
    """

    zookeeper: str
    bootstrap: str
    output: str
    group: str | None = None
    max_seconds: float = 600.0
    accept_lost_offsets: bool = False
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    client_config: str | None = None

    def source(self, job: MicroBatchJob) -> TopicSource:
        """Returns the job's topic with the cluster, isolation and security with which it is read."""
        return TopicSource(self.bootstrap, job.topic, job.isolation, SecuritySource(self.client_config))


OnCommit = Callable[[Committed], None]


def consume(
    job: MicroBatchJob,
    options: RunOptions,
    on_commit: OnCommit = lambda _: None,
    *,
    targets: Mapping[int, int] | None = None,
    fs: FileSystem = DISK,
    clock: Clock = CLOCK,
) -> bool:
    """Processes a topic up to where it ends now, together with all other members of the group, if there is one.

    Args:
        job: The job.
        options: Where and how long.
        on_commit: Called after each commit of this worker.
        targets: The offset up to which each partition is to be processed; by default the topic's current ends.
        fs: The disk of the output.
        clock: The time.

    Returns:
        Whether the output has everything up to there; False where the time was too short.

    Raises:
        JobError: The job's function failed, or the output is another job's.
        OffsetsLostError: Retention deleted offsets that the output lacks, and that is not accepted.
        LogTruncatedError: The log ends below offsets that the output has.
        TopicRecreatedError: The topic was deleted and created again.
        MillraceError: ZooKeeper or the brokers can't answer.
    """
    deadline_ms = clock.monotonic_ms() + int(options.max_seconds * 1000)
    while True:
        output, ends = prepare(job, options, fs, clock)
        targets = ends if targets is None else targets
        kind = _Member if options.zookeeper else _Worker
        worker = kind(job, options, output, targets, on_commit, clock, deadline_ms)
        try:
            return worker.run()
        except OffsetOutOfRangeError as error:
            if clock.monotonic_ms() >= deadline_ms:
                raise
            logger.warning("%s: %s", job.name, error)  # `prepare` says what is lost, or goes on behind it


@again_when_stale
def prepare(job: MicroBatchJob, options: RunOptions, fs: FileSystem, clock: Clock) -> tuple[Output, dict[int, int]]:
    """Returns the output, prepared for all partitions, and the topic's end offsets by partition.

    Raises JobError, OffsetsLostError, LogTruncatedError, TopicRecreatedError or ClientError, as `consume` does.
    """
    source = options.source(job)
    description = describe_topic(source)
    log = log_offsets(source, description.partitions)
    output = Output(options.output, job, description.topic_id, fs, clock)
    output.prepare(log)
    reached = output.next_offsets(log)
    log = check_ends(source, log, reached)
    lost = check_log(job, reached, log, accept_lost_offsets=options.accept_lost_offsets)
    output.pass_over(lost)
    return output, {partition: offsets.end_offset for partition, offsets in log.items()}


@dataclass
class _Worker:
    """Takes, processes and commits the records of the partitions in its targets, until these are reached."""

    job: MicroBatchJob
    options: RunOptions
    output: Output
    targets: Mapping[int, int]
    on_commit: OnCommit
    clock: Clock
    deadline_ms: int

    def __post_init__(self) -> None:
        self._pending = Pending(self.job)
        self._brokers = brokers_of(self.options.source(self.job))

    def run(self) -> bool:
        """Returns whether the targets are reached; False where the time was too short."""
        with self._brokers:
            while (missing := self._missing()) and self.clock.monotonic_ms() < self.deadline_ms:
                for partition, offset in missing.items():
                    self._read(partition, Interval(offset, self.targets[partition]))
                self._commit()
        return not missing

    def _read(self, partition: int, part: Interval) -> None:
        """Adds a partition's records to the batch until it is full; a part without any counts as processed."""
        topic, accept = self.job.topic, self.options.accept_lost_offsets
        offset, has_records = part.from_offset, False
        while offset < part.until_offset and not self._pending.is_full(self.clock.monotonic_ms()):
            left = Interval(offset, part.until_offset)
            records, offset = first_answer(self._brokers, topic, partition, left, accept_lost_offsets=accept)
            for one in records:
                message = Message(topic, partition, one.offset, one.key, one.value, one.timestamp_ms, one.headers)
                self._pending.add(message, self.clock.monotonic_ms())
            has_records = has_records or bool(records)
            if offset == left.from_offset:
                return
        if not has_records and offset >= part.until_offset:
            self._pass_over([ProcessedRange(partition, *part)])

    def _commit(self) -> bool:
        """Commits the batch; returns whether there was any."""
        messages = self._pending.messages
        if messages:
            self.output.check_topic(self._brokers.describe(self.job.topic).topic_id)
            self.on_commit(self.output.commit(messages))
        self._pending.clear()
        return bool(messages)

    def _pass_over(self, ranges: Iterable[ProcessedRange]) -> None:
        try:
            self.output.pass_over(ranges)
        except StaleLedgerError as error:
            logger.info("others were first: %s", error)

    def _missing(self) -> dict[int, int]:
        """Returns, for each partition that has not reached its target, the output's next offset."""
        offsets = self.output.next_offsets(self.targets)
        return {one: offsets.get(one, 0) for one, target in self.targets.items() if offsets.get(one, 0) < target}


class _Member(_Worker):
    """A member of the consumer group, whose members share all partitions until the targets are reached."""

    def run(self) -> bool:
        if not self._missing():
            return True
        connects = ConsumerConnector(
            self._properties(),
            positions=self._positions,
            clock=self.clock,
            security=read_client_security(self.options.client_config),
        )
        with self._brokers, connects as connector:
            (stream,) = connector.create_message_streams({self.job.topic: 1})[self.job.topic]
            while True:
                is_idle = self._take(stream)
                if self._commit():
                    _follow(connector)
                missing = self._missing()
                if is_idle and missing:
                    missing = self._pass_over_markers(connector, missing)
                if not missing or self.clock.monotonic_ms() >= self.deadline_ms:
                    _follow(connector)
                    return not missing

    def _take(self, stream: ConsumerStream) -> bool:
        """Adds records to the batch until it is full or none arrives; returns whether none arrived."""
        try:
            for message in stream:
                now_ms = self.clock.monotonic_ms()
                self._pending.add(message, now_ms)
                if self._pending.is_full(now_ms) or now_ms >= self.deadline_ms:
                    return False
        except ConsumerTimeoutError:
            return True
        return False

    def _pass_over_markers(self, connector: ConsumerConnector, missing: Mapping[int, int]) -> dict[int, int]:
        """Advances owned partitions past an end without records (markers); returns next offsets as `_missing` does."""
        owned = {partition.number for partition in connector.owned_partitions()}
        topic, targets, accept = self.job.topic, self.targets, self.options.accept_lost_offsets
        ranges = [
            ProcessedRange(one, offset, targets[one])
            for one, offset in missing.items()
            if one in owned
            and is_without_records(self._brokers, topic, one, offset, targets[one], accept_lost_offsets=accept)
        ]
        self._pass_over(ranges)
        return self._missing()

    def _positions(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Returns the offsets from which to read these partitions; called once this worker owns them."""
        claimed = {one.number: one for one in partitions}
        return {claimed[number]: offset for number, offset in self.output.positions(claimed).items()}

    def _properties(self) -> dict[str, str]:
        options = self.options
        return {
            "group.id": options.group or self.job.name,
            "zookeeper.connect": options.zookeeper,
            "zookeeper.session.timeout.ms": str(options.session_timeout_ms),
            "zookeeper.connection.timeout.ms": str(CONNECTION_TIMEOUT_MS),
            # A killed worker's partitions are free after its session timeout.
            "rebalance.backoff.ms": str(BACKOFF_MS),
            "rebalance.max.retries": str(4 + 2 * options.session_timeout_ms // BACKOFF_MS),
            "auto.commit.enable": "false",
            "auto.offset.reset": "error",
            "consumer.timeout.ms": str(IDLE_MS),
            "isolation.level": self.job.isolation.value,
            "accept.missing.offsets": str(options.accept_lost_offsets).lower(),
        }


def _follow(connector: ConsumerConnector) -> None:
    """Commits the group's offsets, which only tools read; an error is logged and not raised, since jobs need none."""
    try:
        connector.commit_offsets()
    except MillraceError as error:
        logger.warning("the group's offsets stay behind those of the output: %s", error)
