"""A range of offsets as `spark.read` reads it, but on past batches that can't be read, where their loss is accepted.

Each answer is read as a whole before any of it is given out. Where that fails, what lies before the damage, the damage
itself and what follows in the answer are told apart (`client.damaged_batches`), and reading goes on from there. A gap
that compaction does not explain is asked for, since a damaged base offset or length makes one of good batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millrace.client.damaged_batches import Damage, is_damage
from millrace.errors import MillraceError
from millrace.records.absent import Intervals
from millrace.records.arrow import decode_to_arrow
from millrace.records.damage import Rules
from millrace.records.intervals import Interval
from millrace_pipelines.spark.brokers import Brokers, TopicSource, brokers_of
from millrace_pipelines.spark.read import NO_RECORDS, ReadBlock, blocks_of, read_answers


def read_range_on(source: TopicSource, partition: int, from_offset: int, until_offset: int) -> Iterator[ReadBlock]:
    """Yields what `read_range` does, and a block for each damaged part, which only errors of another kind stop.

    Raises:
        CorruptRecordError: What was read before may be wrong, too.
    """
    position = from_offset
    with brokers_of(source) as brokers:
        while position < until_offset:
            try:
                for wanted, blocks in read_answers(source, partition, Interval(position, until_offset)):
                    yield from _checked(brokers, source.topic, partition, list(blocks))
                    position = wanted.until_offset
            except MillraceError as error:
                if not is_damage(error):
                    raise
                interval = Interval(position, until_offset)
                for part in _parts(brokers, source.topic, partition, interval, error, goes_on=position > from_offset):
                    position = part[0]
                    yield from part[1]


def _checked(brokers: Brokers, topic: str, partition: int, blocks: list[ReadBlock]) -> list[ReadBlock]:
    """Returns an answer's blocks; raises MissingOffsetsError where the log has something in their gaps."""
    for gap in _gaps(block.absent for block in blocks):
        brokers.check_gap(topic, partition, gap)
    return blocks


def _gaps(absent: Iterable[Intervals]) -> Iterator[Interval]:
    for intervals in absent:
        for first, end in intervals:
            yield Interval(int(first), int(end))


def _parts(
    brokers: Brokers, topic: str, partition: int, interval: Interval, error: MillraceError, *, goes_on: bool
) -> Iterator[tuple[int, list[ReadBlock]]]:
    """Yields the blocks of each part, and the offset behind it."""
    position = interval.from_offset
    rules = Rules(_decoded, lambda gap: brokers.check_gap(topic, partition, gap))
    for part in brokers.damaged_batches(topic, partition, rules).parts(*interval, error, goes_on=goes_on):
        if isinstance(part, Damage):
            position, blocks = part.interval.until_offset, [ReadBlock(NO_RECORDS, damage=part)]
        else:
            wanted, blocks = blocks_of(part, Interval(position, interval.until_offset))
            position = wanted.until_offset
        yield position, blocks


def _decoded(batch: memoryview) -> None:
    for _ in decode_to_arrow(batch):
        pass
