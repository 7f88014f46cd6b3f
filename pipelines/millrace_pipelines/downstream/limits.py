"""What the log says of an output's offsets: whether records are lost, and where nothing is left to be processed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from millrace.client.damaged_batches import is_damage
from millrace.errors import MillraceError
from millrace.records.damage import Rules
from millrace.records.intervals import Interval
from millrace.records.record import read_records
from millrace_pipelines.downstream.job import MicroBatchJob
from millrace_pipelines.downstream.output import RETENTION, ProcessedRange
from millrace_pipelines.spark.brokers import Brokers, LogOffsets
from millrace_pipelines.spark.errors import LogTruncatedError, OffsetsLostError


def check_log(
    job: MicroBatchJob, next_offsets: Mapping[int, int], log: Mapping[int, LogOffsets], *, accept_lost_offsets: bool
) -> list[ProcessedRange]:
    """Returns the offsets that retention deleted before the output had them, if that is accepted.

    Raises:
        OffsetsLostError: There are such offsets, and that is not accepted.
        LogTruncatedError: A log ends below what the output has.
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
    """Returns whether the log has no record in a range, only transaction markers and what is aborted or compacted.

    What is lost in damaged batches is no record, either, where that is accepted.

    Raises:
        RecordError: Batches can't be read, or a log that is not compacted has lost some of the offsets, and that is not
            accepted.
    """
    offset = from_offset
    while offset < until_offset:
        part = Interval(offset, until_offset)
        try:
            has_records, offset = _first_answer(brokers, topic, partition, part, accept_lost_offsets)
        except MillraceError as error:
            if not (accept_lost_offsets and is_damage(error)):
                raise
            rules = Rules(read_records, partial(brokers.check_gap, topic, partition))
            records, offset = brokers.damaged_batches(topic, partition, rules).read_on(part, error)
            has_records = bool(records)
        if has_records or offset == part.from_offset:
            return False
    return True


def _first_answer(
    brokers: Brokers, topic: str, partition: int, part: Interval, accept_lost_offsets: bool
) -> tuple[bool, int]:
    """Returns whether an answer has records of a range, and how far the answer goes."""
    next_offset = part.from_offset
    for batch in brokers.batches(topic, partition, next_offset, accept_missing_offsets=accept_lost_offsets):
        if any(record.offset in range(*part) for record in batch.records()):
            return True, next_offset
        next_offset = batch.header.next_offset
    return False, next_offset
