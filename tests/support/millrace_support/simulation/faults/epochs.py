"""Which leader epochs may rot, in batches and in `leader-epoch-checkpoint`: those that a broker can certainly mend.

No checksum covers either. In the file one may rot where two batches of each epoch, in the same segment or not, show
which is wrong (`leader_epochs`): a start believes two batches, and of an epoch with one batch either may be wrong.

In batches, one of a log may rot at a time.

A broker compares them with its log's epochs, and mends one if the batches beside it have what these say
(`batch_epochs`). So both beside it must have its epoch, and the file of the log's epochs must say so. Until it is
mended neither the segments of that log nor the file are damaged again. Compacted logs are left out, as compaction may
take away what lies beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from millrace.errors import StorageError
from millrace.records.batch import read_header
from millrace_broker.replication.epoch_ends import Entries, epoch_of_offset
from millrace_broker.storage import TopicPartition
from millrace_broker.storage.checkpoints import read_lines
from millrace_broker.storage.filenames import LEADER_EPOCH_CHECKPOINT, LOG_SUFFIX
from millrace_support.simulation.faults.breaker import Breaker
from millrace_support.simulation.faults.copies import Copy, copies, files, folder
from millrace_support.simulation.simulated_broker import SimulatedBroker

EPOCH = range(12, 16)  # where it is in a batch
FEWEST = 2


def epoch_is_certain(
    breaker: Breaker, broker: SimulatedBroker, key: TopicPartition, whole: Sequence[Copy], index: int
) -> bool:
    """Returns whether the epoch of one of the whole batches of a segment is certain by those beside it."""
    if "cleanup.policy" in breaker.simulation.world.topic_configs.get(key.topic, {}):
        return False
    beside = whole[index - 1 : index + 2] if index else []
    if len(beside) < 3 or any(one.end != behind.begin for one, behind in pairwise(beside)):
        return False
    written = {read_header(memoryview(one.data)).partition_leader_epoch for one in beside}
    return written == {_epoch_by_file(broker, key, one.base_offset) for one in beside} and len(written) == 1


def file_is_certain(broker: SimulatedBroker, key: TopicPartition) -> bool:
    """Returns whether a log has two batches of each epoch in the file of its epochs."""
    contents = [broker.fs.content(f"{folder(key)}/{one}") for one in files(broker.fs, key) if one.endswith(LOG_SUFFIX)]
    entries = _entries(broker, key)
    by_file = Counter(epoch_of_offset(entries, one.base_offset) for content in contents for one in copies(content))
    return all(by_file[epoch] >= FEWEST for epoch, _ in entries)


def _epoch_by_file(broker: SimulatedBroker, key: TopicPartition, offset: int) -> int:
    return epoch_of_offset(_entries(broker, key), offset)


def _entries(broker: SimulatedBroker, key: TopicPartition) -> Entries:
    with suppress(StorageError, ValueError):  # the file is damaged
        lines = read_lines(broker.fs, f"{folder(key)}/{LEADER_EPOCH_CHECKPOINT}")
        return [(int(epoch), int(start)) for epoch, start in lines]
    return []


def epoch_rots(breaker: Breaker, broker: SimulatedBroker, key: TopicPartition, path: str, at: int) -> None:
    """Takes note that a byte of an epoch rots at a position of a file."""
    breaker.rotten_epochs[broker.id, key] = path, at, broker.fs.content(path)[at]
    breaker.simulation.judge.histories[key].may_have_wrong_epochs = True


def has_rotten_epoch(breaker: Breaker, broker: SimulatedBroker, key: TopicPartition) -> bool:
    """Returns whether an epoch in a broker's log has rotted and is not mended yet."""
    path, at, right = breaker.rotten_epochs.get((broker.id, key), ("", 0, 0))
    if not path:
        return False
    content = broker.fs.content(path) if broker.fs.exists(path) else b""
    if at >= len(content) or content[at] == right:
        del breaker.rotten_epochs[broker.id, key]
        return False
    return True
