"""What the log says of an output's offsets, and which worker has which partitions."""

import pyarrow as pa
import pytest

from millrace_pipelines.downstream.consume import check_log
from millrace_pipelines.downstream.job import MicroBatchJob
from millrace_pipelines.downstream.output import ProcessedRange
from millrace_pipelines.downstream.workers import shares
from millrace_pipelines.spark.brokers import LogOffsets
from millrace_pipelines.spark.errors import LogTruncatedError, OffsetsLostError

JOB = MicroBatchJob(name="j", topic="t", schema=pa.schema([]), process=lambda rows, _: rows)
LOG = {0: LogOffsets(10, 20, 25), 1: LogOffsets(0, 5)}


def test_offsets_within_the_log_lose_nothing():
    assert check_log(JOB, {0: 10, 1: 5}, LOG, accept_lost_offsets=False) == []
    assert check_log(JOB, {0: 25}, LOG, accept_lost_offsets=False) == []


def test_what_retention_deleted_is_named_and_can_be_accepted():
    with pytest.raises(OffsetsLostError, match=r"partition 0: 7-9.*accept_lost_offsets"):
        check_log(JOB, {0: 7, 1: 0}, LOG, accept_lost_offsets=False)
    assert check_log(JOB, {0: 7, 1: 0}, LOG, accept_lost_offsets=True) == [ProcessedRange(0, 7, 10, reason="retention")]


def test_a_log_that_ends_below_the_output_is_named():
    with pytest.raises(LogTruncatedError, match="partition 1 ends at offset 5, and j has processed offsets up to 5"):
        check_log(JOB, {1: 6}, LOG, accept_lost_offsets=True)


SHARES = [
    ({0: 5, 1: 6, 2: 7}, 2, [{0: 5, 2: 7}, {1: 6}]),
    ({0: 5, 1: 6}, 5, [{0: 5}, {1: 6}]),
    ({0: 5}, 0, []),
    ({}, 3, []),
]


@pytest.mark.parametrize(("targets", "size", "parts"), SHARES)
def test_each_partition_is_of_one_worker(targets, size, parts):
    assert shares(targets, size) == parts
