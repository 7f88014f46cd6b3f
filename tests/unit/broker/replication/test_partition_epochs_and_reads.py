"""A led partition: ends of epochs, diverging readers, in-sync replicas, what `read_committed` readers are told."""

import uuid
from contextlib import contextmanager, nullcontext

import pytest

from millrace.errors import CorruptRecordError, NotEnoughReplicasError, OffsetOutOfRangeError
from millrace.fs import OsFileSystem
from millrace.records.batch import TRANSACTIONAL_FLAG
from millrace.records.control import ControlType, EndTransactionMarker
from millrace.records.record import BatchProducer, NewRecord, decode_records, encode_batch
from millrace_broker.replication.epoch_ends import UNKNOWN, end_of_epoch, epoch_of_offset
from millrace_broker.replication.isr_tables import IsrTables
from millrace_broker.replication.partition import Partition
from millrace_broker.replication.replica import Isolation
from millrace_broker.replication.roles import Leadership
from millrace_broker.storage import Log, LogConfig, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.markers import append_marker

ENTRIES = [(0, 0), (2, 50), (5, 90)]


@pytest.mark.parametrize(
    ("epoch", "end"),
    [(5, (5, 120)), (2, (2, 90)), (3, (2, 90)), (4, (2, 90)), (0, (0, 50)), (1, (0, 50)), (9, UNKNOWN), (-1, UNKNOWN)],
)
def test_where_an_epoch_ends(epoch, end):
    assert end_of_epoch(ENTRIES, epoch, 120) == end


def test_where_an_epoch_ends_that_is_older_than_the_log():
    assert end_of_epoch([(3, 40), (4, 60)], 1, 80) == (1, 40)
    assert end_of_epoch([], 1, 80) == UNKNOWN


def test_the_epoch_of_an_offset():
    assert [epoch_of_offset(ENTRIES, offset) for offset in (0, 49, 50, 89, 90, 500)] == [0, 0, 2, 2, 5, 5]
    assert epoch_of_offset([(3, 40)], 7) == -1


@pytest.fixture
def partition(tmp_path):
    log = Log(OsFileSystem(), ManualClock(1_700_000_000_000), str(tmp_path), TopicPartition("t", 0), LogConfig())
    yield Partition(log, uuid.uuid4(), 4, {})
    log.close()


@pytest.mark.parametrize(
    ("min_insync_replicas", "replicas", "is_enough"),
    [(1, 1, True), (2, 1, True), (1, 3, True), (2, 2, False), (3, 2, False)],
)
def test_no_more_replicas_are_asked_for_than_the_partition_has(tmp_path, min_insync_replicas, replicas, is_enough):
    config = LogConfig(min_insync_replicas=min_insync_replicas)
    log = Log(OsFileSystem(), ManualClock(1_700_000_000_000), str(tmp_path), TopicPartition("t", 0), config)
    partition = Partition(log, uuid.uuid4(), 4, {})
    IsrTables(1, ManualClock()).lead(partition, Leadership(4, 0, tuple(range(1, replicas + 1)), (1,)), 0)
    assert partition.has_in_sync_replicas is is_enough
    if not is_enough:
        with pytest.raises(NotEnoughReplicasError, match=r"t-0: replicas in sync: 1, needed: 2"):
            partition.check_in_sync_replicas()
    log.close()


def batch(producer_id=None, sequence=0):
    producer = {} if producer_id is None else {"producer": BatchProducer(producer_id, 0, sequence)}
    flags = 0 if producer_id is None else TRANSACTIONAL_FLAG
    return encode_batch([NewRecord(b"v", b"k", 1_700_000_000_000)], flags=flags, **producer)


def end_transaction(partition, kind, producer_id):
    marker = EndTransactionMarker(kind, 0)
    append_marker(partition.log, marker, producer_id=producer_id, producer_epoch=0, leader_epoch=4)
    partition.high_watermark = partition.log.log_end_offset


def test_a_fresh_leaders_epoch_is_known_before_it_writes(partition):
    assert partition.end_of_epoch(4) == (4, 0)
    partition.append(batch())
    assert (partition.end_of_epoch(4), partition.epoch_of(0)) == ((4, 1), 4)
    partition.leader_epoch = 6
    assert (partition.end_of_epoch(4), partition.end_of_epoch(6)) == ((4, 1), (6, 1))


def test_a_reader_of_another_history_is_told_where_it_parted(partition):
    for _ in range(3):
        partition.append(batch())
    partition.leader_epoch = 6
    partition.append(batch())
    assert partition.diverging_epoch(4, 6) is None
    assert partition.diverging_epoch(2, 4) is None
    assert partition.diverging_epoch(9, 4) == (4, 3)
    assert partition.diverging_epoch(4, 5) == (4, 3)
    assert partition.diverging_epoch(4, -1) is None
    for offset, epoch in ((4, 9), (-1, 4)):
        with pytest.raises(OffsetOutOfRangeError):
            partition.diverging_epoch(offset, epoch)


@pytest.mark.parametrize(
    ("rotten", "corrected"), [([(5, 0), (7, 1)], [(4, 0), (7, 1)]), ([(2, 0), (7, 1)], [(4, 0), (7, 1)])]
)
def test_a_follower_that_has_the_same_batch_is_not_cut_off_by_a_rotten_file(tmp_path, rotten, corrected):
    """Of an epoch with one batch, the file alone says when it was; two replicas that have the batch know better."""
    with _reopened_with(tmp_path, rotten) as partition:
        assert list(partition.log.leader_epochs.entries) == rotten
        assert partition.diverging_epoch(1, 4) is None
        assert list(partition.log.leader_epochs.entries) == corrected
        assert partition.diverging_epoch(1, 4) is None
    with _reopened_with(tmp_path, None) as partition:
        assert list(partition.log.leader_epochs.entries) == corrected


@pytest.mark.parametrize(("offset", "epoch"), [(1, 3), (2, 6), (3, 4)])
def test_another_batch_of_a_follower_is_cut_off(tmp_path, offset, epoch):
    with _reopened_with(tmp_path, [(5, 0), (7, 1)]) as partition:
        assert partition.diverging_epoch(offset, epoch) is not None
        assert list(partition.log.leader_epochs.entries) == [(5, 0), (7, 1)]


EPOCHS = (0, 1, 1, 3, 4)  # of batches with one record each


@pytest.mark.parametrize("damaged", range(len(EPOCHS)))
@pytest.mark.parametrize("has_file", [True, False])
def test_no_follower_is_cut_by_epochs_that_damage_hides(tmp_path, damaged, has_file):
    """The leader knows its epochs from a file, or from its batches but for one: a follower has all of them."""
    with _damaged_at(tmp_path, damaged, has_file=has_file) as partition:
        for number, epoch in enumerate(EPOCHS):
            hides = not has_file and number == damaged > 0 and EPOCHS.count(epoch) == 1
            with pytest.raises(CorruptRecordError, match="may hide epoch") if hides else nullcontext():
                assert partition.diverging_epoch(number + 1, epoch) is None
            with pytest.raises(CorruptRecordError, match="may hide epoch") if hides else nullcontext():
                assert partition.end_of_epoch(epoch)[0] == epoch


@pytest.mark.parametrize("damaged", range(len(EPOCHS)))
@pytest.mark.parametrize("has_file", [True, False])
def test_a_follower_with_a_batch_of_an_epoch_that_is_not_there_is_cut_as_far_as_it_is_sure(tmp_path, damaged, has_file):
    """It has a batch of epoch 2 behind those of epoch 1."""
    with _damaged_at(tmp_path, damaged, has_file=has_file) as partition:
        if damaged == 2 or (damaged == 3 and not has_file):
            with pytest.raises(CorruptRecordError, match="may hide epoch 2"):
                partition.diverging_epoch(4, 2)
        else:
            assert partition.diverging_epoch(4, 2) == (1, 3)


@contextmanager
def _damaged_at(directory, damaged, *, has_file):
    """Opens a log with a damaged batch at an offset as a leader of a new epoch does, with its file of epochs or not."""
    path, base = str(directory), len(EPOCHS)
    log = Log(OsFileSystem(), ManualClock(1_700_000_000_000), path, TopicPartition("t", 0), LogConfig())
    for epoch in EPOCHS:
        log.append(batch(), leader_epoch=epoch)
    log.close()
    file = directory / "00000000000000000000.log"
    content = bytearray(file.read_bytes())
    content[(damaged + 1) * len(content) // base - 1] ^= 1
    file.write_bytes(content)
    if not has_file:
        (directory / "leader-epoch-checkpoint").unlink()
    log = Log(
        OsFileSystem(), ManualClock(1_700_000_000_000), path, TopicPartition("t", 0), LogConfig(),
        clean=False, recovery_point=base, high_watermark=base,
    )  # fmt: skip
    assert [(one.start_offset, one.end_offset) for _, one in log.damage] == [(damaged, damaged + 1)]
    partition = Partition(log, uuid.uuid4(), 9, {})
    yield partition
    log.close()


@contextmanager
def _reopened_with(directory, entries):
    """Opens a log with a batch of epoch 4 and one of epoch 7, of which the file says that they are of other epochs."""
    path, file = str(directory), directory / "leader-epoch-checkpoint"
    if entries is not None:
        log = Log(OsFileSystem(), ManualClock(1_700_000_000_000), path, TopicPartition("t", 0), LogConfig())
        for epoch in (4, 7):
            log.append(batch(), leader_epoch=epoch)
        log.close()
        file.write_text("".join(f"{line}\n" for line in (0, len(entries), *(f"{one} {at}" for one, at in entries))))
    log = Log(OsFileSystem(), ManualClock(1_700_000_000_000), path, TopicPartition("t", 0), LogConfig())
    yield Partition(log, uuid.uuid4(), 8, {})
    log.close()


def test_read_committed_ends_at_the_open_transaction_and_names_the_aborted(partition):
    partition.append(batch(7))
    partition.append(batch())
    assert (partition.visible_end(Isolation.READ_UNCOMMITTED), partition.visible_end(Isolation.READ_COMMITTED)) == (
        2,
        0,
    )
    assert partition.read(0, 10_000, at_least_one=True, isolation=Isolation.READ_COMMITTED) == (b"", [])
    assert partition.read(0, 10_000, at_least_one=True).aborted is None
    end_transaction(partition, ControlType.ABORT, 7)
    partition.append(batch(8))
    end_transaction(partition, ControlType.ABORT, 8)
    records, aborted = partition.read(0, 10_000, at_least_one=True, isolation=Isolation.READ_COMMITTED)
    assert [one.offset for one in decode_records(records)] == [0, 1, 3]
    assert aborted == [(7, 0), (8, 3)]
    first, aborted = partition.read(0, 10, at_least_one=True, isolation=Isolation.READ_COMMITTED)
    assert (len(first), aborted) == (len(batch(7)), [(7, 0)])


def test_the_last_stable_offset_is_never_below_the_log_start(partition):
    partition.append(batch(7))
    for _ in range(3):
        partition.append(batch())
    partition.log.raise_log_start_offset(2)
    assert partition.last_stable_offset == 2
    assert partition.read(2, 10_000, at_least_one=True, isolation=Isolation.READ_COMMITTED) == (b"", [])
    end_transaction(partition, ControlType.COMMIT, 7)
    assert partition.last_stable_offset == partition.high_watermark == 5


def test_where_nothing_fits_the_offset_is_checked_all_the_same(partition):
    partition.append(batch())
    assert partition.read(0, 0, at_least_one=False).records == b""
    assert partition.read(0, 0, at_least_one=True).records != b""
    with pytest.raises(OffsetOutOfRangeError):
        partition.read(5, 0, at_least_one=False)
