"""The leader epochs with which a broker starts: one more wherever the end of a log may have been lost."""

import uuid
from types import SimpleNamespace

import pytest

from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.cluster.local_store import raised_leader_epochs
from millrace_broker.cluster.metadata_image import MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.storage import LogManager, TopicPartition
from millrace_support.clock import ManualClock

TOPIC_ID = uuid.UUID(int=7)
BATCH = encode_batch([NewRecord(b"value", timestamp_ms=1000)])
ONE, OTHER, MISSING = (TopicPartition("t", number) for number in range(3))


def started(*dirs: str) -> LogManager:
    logs = LogManager(OsFileSystem(), ManualClock(), dirs, {}, "cluster", 1)
    logs.start()
    return logs


def image(topic_id: uuid.UUID = TOPIC_ID, epoch: int = 0, leader: int = 1) -> MetadataImage:
    partitions = tuple(PartitionInfo(index, leader, epoch, (leader,), (leader,)) for index in range(3))
    return MetadataImage("cluster", 1, {}, {"t": TopicInfo("t", topic_id, partitions, {})})


@pytest.mark.parametrize(
    ("stored", "newest_epoch", "is_whole", "epoch"),
    [
        (0, 0, True, 0),
        (0, -1, True, 0),
        (0, 0, False, 1),
        (1, 0, False, 2),  # nothing was written in epoch 1
        (0, 9, True, 9),  # a folder that came from elsewhere
        (0, 9, False, 10),
        (12, 9, False, 13),
    ],
)
def test_the_rule(stored: int, newest_epoch: int, epoch: int, *, is_whole: bool) -> None:
    recovery = SimpleNamespace(was_clean=is_whole, truncated_bytes=0, dropped_segments=0)
    log = SimpleNamespace(leader_epochs=SimpleNamespace(newest_found=newest_epoch), recovery=recovery)
    logs = SimpleNamespace(get=lambda _: log, topic_id=lambda _: TOPIC_ID)
    assert raised_leader_epochs(image(epoch=stored), 1, logs).get(ONE, stored) == epoch


def test_a_log_that_is_gone_has_lost_all() -> None:
    logs = SimpleNamespace(get=lambda _: None, topic_id=lambda _: None)
    assert raised_leader_epochs(image(epoch=3), 1, logs)[ONE] == 4


@pytest.fixture
def dirs(tmp_path) -> list[str]:
    """Two folders with a partition each, stopped cleanly in epoch 5."""
    paths = [str(tmp_path / name) for name in ("one", "two")]
    logs = started(*paths)
    for key in (ONE, OTHER):
        logs.create(key, TOPIC_ID, {}).append(BATCH, leader_epoch=5)
    logs.close()
    return paths


def test_a_clean_folder_raises_nothing(dirs: list[str]) -> None:
    logs = started(*dirs)
    assert raised_leader_epochs(image(epoch=5), 1, logs) == {MISSING: 6}
    assert raised_leader_epochs(image(epoch=5, leader=2), 1, logs) == {}
    logs.close()


def test_only_the_partitions_of_an_unclean_folder_are_raised(dirs: list[str], tmp_path) -> None:
    (unclean,) = (key for key in (ONE, OTHER) if (tmp_path / "two" / str(key)).exists())
    (tmp_path / "two" / ".kafka_cleanshutdown").unlink()
    logs = started(*dirs)
    assert raised_leader_epochs(image(epoch=5), 1, logs) == {unclean: 6, MISSING: 6}
    logs.close()


def test_a_log_that_is_damaged_after_a_clean_stop_keeps_its_end_and_its_epoch(dirs: list[str], tmp_path) -> None:
    (segment,) = tmp_path.glob("*/t-0/*.log")
    with segment.open("r+b") as file:
        file.truncate(20)
    logs = started(*dirs)
    assert raised_leader_epochs(image(epoch=5), 1, logs) == {MISSING: 6}
    assert logs.logs()[ONE].log_end_offset == 1
    assert [(one.start_offset, one.end_offset) for _, one in logs.logs()[ONE].damage] == [(0, 1)]
    logs.close()


def test_an_epoch_is_never_given_twice_though_all_of_it_was_lost(dirs: list[str], tmp_path) -> None:
    (segment,) = tmp_path.glob("*/t-0/*.log")
    with segment.open("r+b") as file:
        file.truncate(0)
    for path in dirs:
        (tmp_path / path / ".kafka_cleanshutdown").unlink()
    logs = started(*dirs)
    assert logs.logs()[ONE].leader_epochs.entries == ()
    assert raised_leader_epochs(image(), 1, logs) == {ONE: 6, OTHER: 6, MISSING: 1}
    logs.close()


def test_the_log_of_an_older_topic_of_the_name_does_not_count(dirs: list[str]) -> None:
    logs = started(*dirs)
    assert raised_leader_epochs(image(uuid.UUID(int=8)), 1, logs) == {ONE: 1, OTHER: 1, MISSING: 1}
    logs.close()


@pytest.mark.parametrize("was_clean", [False, True])
def test_a_folder_gets_its_marker_once_its_epochs_are_raised(dirs: list[str], tmp_path, *, was_clean: bool) -> None:
    markers = [tmp_path / path / ".kafka_cleanshutdown" for path in dirs]
    if not was_clean:
        for marker in markers:
            marker.unlink()
    started(*dirs).close(epochs_are_raised=False)
    assert [marker.exists() for marker in markers] == [was_clean, was_clean]
    started(*dirs).close()
    assert [marker.exists() for marker in markers] == [True, True]
