"""Flipped bits in the files and names of a data directory that no log's own are: no log loses a record by them.

Where it is no longer said to be this broker's, the directory is refused, with a sentence that names the file, and is as
it was once the file is.
"""

import os
import uuid
from pathlib import Path

import pytest

from millrace.errors import MillraceError
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage import LogManager, TopicPartition
from millrace_support.clock import ManualClock

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
BATCH = encode_batch([NewRecord(b"value", timestamp_ms=1000)])


def opened(folder: Path) -> LogManager:
    return LogManager(OsFileSystem(), ManualClock(), [str(folder)], {}, "M0tZ0qZ3Q4Kq2sR1yHn0aw", 1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory after a clean stop, with a deleted partition that was not removed yet."""
    logs = opened(tmp_path / "data")
    logs.start()
    for topic_partition in PARTITIONS:
        logs.create(topic_partition, uuid.uuid4(), {}).append(BATCH, leader_epoch=0)
    logs.delete(PARTITIONS[2])
    logs.close()
    return tmp_path / "data"


def check_whole(data: Path, told: str) -> None:
    logs = opened(data)
    logs.start()
    ends = {topic_partition: log.log_end_offset for topic_partition, log in logs.logs().items()}
    logs.close()
    assert ends == dict.fromkeys(PARTITIONS[:2], 1), told


def with_flips(content: bytes) -> list[bytes]:
    """Returns the content with a bit flipped, two of each byte."""
    places = [(at, bit) for at in range(len(content)) for bit in (at % 8, 7)]
    return [content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :] for at, bit in places]


def refusal(data: Path) -> str | None:
    """Starts and stops a broker's logs; returns why the directory is refused, None where it is not."""
    logs = opened(data)
    try:
        logs.start()
    except MillraceError as error:
        return str(error)
    assert len(logs.logs()) == 2
    logs.close()
    return None


def test_a_flipped_bit_in_meta_properties_has_the_directory_refused_or_nothing_happens(data: Path) -> None:
    path = data / "meta.properties"
    content, refused = path.read_bytes(), 0
    for flipped in with_flips(content):
        path.write_bytes(flipped)
        reason = refusal(data)
        assert reason is None or str(path) in reason, flipped
        assert path.read_bytes() == flipped
        refused += reason is not None
    assert refused > len(content) / 2
    path.write_bytes(content)
    check_whole(data, "in the end")


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 9, b"0"])
def test_the_clean_shutdown_marker_may_be_gone_or_hold_anything(data: Path, content: bytes | None) -> None:
    path = data / ".kafka_cleanshutdown"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    check_whole(data, str(content))


def test_a_flipped_bit_in_the_name_of_a_deleted_partition_touches_no_other(data: Path) -> None:
    [deleted] = data.glob("*-delete")
    name = os.fsencode(deleted.name)
    before = os.fsencode(deleted)
    for flipped in with_flips(name):
        if b"/" not in flipped:
            os.makedirs(os.fsencode(data) + b"/" + flipped, exist_ok=True)
            check_whole(data, repr(flipped))
    assert not os.path.exists(before)
