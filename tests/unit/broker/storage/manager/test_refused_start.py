"""A start that is refused, or fails half-way, leaves the folders as they were: only what was opened is closed."""

import uuid
from pathlib import Path

import pytest

from millrace.errors import DataDirInUseError, InconsistentClusterIdError, MillraceError, StorageError
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import LogManager, TopicPartition
from millrace_support.clock import ManualClock

TOPIC_ID = uuid.UUID(int=7)
BATCH = encode_batch([NewRecord(b"value", timestamp_ms=1000)])
PARTITIONS = [TopicPartition("t", number) for number in range(4)]
MARKER = ".kafka_cleanshutdown"


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("one", "two")]


def manager(dirs: list[Path], cluster_id: str = "cluster", broker_id: int = 1) -> LogManager:
    return LogManager(OsFileSystem(), ManualClock(), [str(path) for path in dirs], {}, cluster_id, broker_id)


def filled(dirs: list[Path]) -> LogManager:
    logs = manager(dirs)
    logs.start()
    for topic_partition in PARTITIONS:
        log = logs.create(topic_partition, TOPIC_ID, {})
        for _ in range(9):
            log.append(BATCH, leader_epoch=0)
        log.raise_log_start_offset(5)
    logs.checkpoint()
    return logs


def content(*dirs: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for each in dirs for path in each.rglob("*") if path.is_file()}


def refused(logs: LogManager, error: type[MillraceError]) -> None:
    """Start and close as a broker does: what a failed start leaves is closed too."""
    with pytest.raises(error):
        logs.start()
    logs.close()


@pytest.mark.parametrize("cluster_id", ["cluster", "another"])
def test_the_folder_of_a_live_broker_is_not_touched(dirs: list[Path], cluster_id: str) -> None:
    live = filled(dirs)
    before = content(*dirs)
    refused(manager(dirs, cluster_id), DataDirInUseError)
    assert content(*dirs) == before
    refused(manager(dirs), DataDirInUseError)  # still locked
    live.close()


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize(("cluster_id", "broker_id"), [("another", 1), ("cluster", 2)])
def test_the_folder_of_another_cluster_or_broker_is_not_touched(
    dirs: list[Path], cluster_id: str, broker_id: int, *, is_clean: bool
) -> None:
    filled(dirs).close()
    if not is_clean:
        for path in dirs:
            (path / MARKER).unlink()
    before = content(*dirs)
    refused(manager(dirs, cluster_id, broker_id), InconsistentClusterIdError)
    assert content(*dirs) == before
    again = manager(dirs)
    assert bool(again.start().clean_dirs) == is_clean
    again.close()


def test_a_free_folder_beside_one_in_use_stays_clean(dirs: list[Path]) -> None:
    filled(dirs).close()
    holder = manager(dirs[:1])
    holder.start()
    before = content(*dirs)
    refused(manager(dirs), DataDirInUseError)
    assert content(*dirs) == before
    other = manager(dirs[1:])
    assert other.start().clean_dirs == (str(dirs[1]),)
    other.close()
    holder.close()


def test_an_unclean_folder_beside_one_in_use_stays_unclean(dirs: list[Path]) -> None:
    filled(dirs).close()
    (dirs[1] / MARKER).unlink()
    holder = manager(dirs[:1])
    holder.start()
    before = content(*dirs)
    refused(manager(dirs), DataDirInUseError)
    assert content(*dirs) == before
    holder.close()


def test_a_start_that_fails_with_its_logs_open_means_recovery(dirs: list[Path]) -> None:
    filled(dirs).close()
    twice = next(path for path in dirs[0].iterdir() if path.is_dir())
    (dirs[1] / twice.name).mkdir()
    starts = [(path / "log-start-offset-checkpoint").read_bytes() for path in dirs]
    refused(manager(dirs), StorageError)
    assert [(path / MARKER).exists() for path in dirs] == [False, False]
    assert [(path / "log-start-offset-checkpoint").read_bytes() for path in dirs] == starts


def test_what_was_closed_is_not_closed_again(dirs: list[Path]) -> None:
    logs = filled(dirs)
    logs.close()
    following = manager(dirs)
    following.start()
    following.create(PARTITIONS[0], TOPIC_ID, {}).append(BATCH, leader_epoch=0)
    before = content(*dirs)
    logs.close()
    assert content(*dirs) == before
    following.close()
