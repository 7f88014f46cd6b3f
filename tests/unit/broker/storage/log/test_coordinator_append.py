"""What a coordinator appends is stored as what a client sends, whichever way of checking it takes."""

import pytest

from millrace.errors import CorruptRecordError, MillraceError, RecordTooLargeError
from millrace.fs import OsFileSystem
from millrace.records.compression import Codec
from millrace.records.record import NewRecord, decode_records, encode_batch
from millrace_broker.storage import AppendOrigin, Log, LogConfig, TopicPartition
from millrace_support.clock import ManualClock

RECORDS = [NewRecord(b"value %d" % number, b"key", 1_000 + number) for number in range(5)]
MAX_BYTES = 400


@pytest.fixture(params=["delete", "compact"])
def new_log(request, tmp_path):
    def new_log(name, compression_type):
        config = LogConfig(
            compression_type=compression_type,
            cleanup_policy=request.param,
            max_message_bytes=MAX_BYTES,
            retention_ms=-1,
        )
        (tmp_path / name).mkdir()
        return Log(OsFileSystem(), ManualClock(now_ms=5_000), str(tmp_path / name), TopicPartition("t", 0), config)

    return new_log


@pytest.mark.parametrize("compression_type", ["producer", "uncompressed", "gzip", "zstd"])
@pytest.mark.parametrize("sent", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("count", [1, len(RECORDS)])
def test_the_bytes_are_those_of_a_clients_append(new_log, compression_type, sent, count):
    batch = encode_batch(RECORDS[:count], codec=sent)
    stored = []
    for origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
        log = new_log(origin.name, compression_type)
        infos = [log.append(batch, leader_epoch=3, origin=origin) for _ in range(2)]
        assert [(info.first_offset, info.last_offset) for info in infos] == [(0, count - 1), (count, 2 * count - 1)]
        stored.append(log.read(0, 4_000, up_to_offset=2 * count))
        log.close()
    assert stored[0] == stored[1]
    assert [record.value for record in decode_records(stored[1])] == 2 * [record.value for record in RECORDS[:count]]


@pytest.mark.parametrize("compression_type", ["producer", "uncompressed", "gzip"])
@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (encode_batch([NewRecord(bytes(MAX_BYTES), b"key", 1_000)]), RecordTooLargeError),
        (encode_batch(RECORDS)[:-1], CorruptRecordError),
        (encode_batch(RECORDS)[:-1] + b"?", CorruptRecordError),
    ],
    ids=["too large", "cut short", "damaged"],
)
def test_what_a_log_does_not_take_is_refused_and_leaves_it_as_it_was(new_log, compression_type, batch, error):
    log = new_log("log", compression_type)
    with pytest.raises(MillraceError) as raised:
        log.append(batch, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    assert type(raised.value) is error
    assert (log.log_end_offset, log.size_bytes) == (0, 0)
    log.close()
