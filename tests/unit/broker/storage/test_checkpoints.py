import uuid

import pytest

from millrace.errors import InconsistentClusterIdError, StorageError
from millrace.fs import read_file
from millrace.records.batch import BatchHeader, read_header
from millrace.records.record import NewRecord, encode_batch
from millrace_broker.storage.checkpoints import is_checked, read_offsets, salvaged_offsets, write_offsets
from millrace_broker.storage.data_dirs.meta_properties import claim_data_dir, read_topic_id, write_topic_id
from millrace_broker.storage.filenames import TopicPartition
from millrace_broker.storage.log.leader_epochs import LeaderEpochs
from millrace_support.crash_fs import CrashFileSystem


def no_batches(_: int) -> list[BatchHeader]:
    return []


def put(fs: CrashFileSystem, path: str, content: bytes) -> None:
    fs.pwritev(fs.open(path, create=True), [content], 0)


def headers_of(written: list[tuple[int, int]]) -> list[BatchHeader]:
    """Headers of batches at these offsets and of these leader epochs."""
    return [
        read_header(encode_batch([NewRecord(b"v")], base_offset=offset))._replace(partition_leader_epoch=epoch)
        for offset, epoch in written
    ]


def test_offsets_come_back_and_look_as_kafka_writes_them() -> None:
    fs = CrashFileSystem()
    offsets = {TopicPartition("b", 1): 2**40, TopicPartition("a", 0): 7}
    write_offsets(fs, "/checkpoint", offsets)
    assert read_file(fs, "/checkpoint") == b"0\n2\na 0 7\nb 1 1099511627776\n"
    assert read_offsets(fs.after_cut(), "/checkpoint") == offsets


@pytest.mark.parametrize("offsets", [{}, {TopicPartition("a", 0): 7, TopicPartition("b", 1): 0}])
def test_a_check_is_no_entry_and_notices_each_change(offsets: dict[TopicPartition, int]) -> None:
    fs = CrashFileSystem()
    write_offsets(fs, "/checkpoint", offsets, with_check=True)
    assert is_checked(fs, "/checkpoint")
    assert read_offsets(fs, "/checkpoint") == salvaged_offsets(fs, "/checkpoint") == offsets
    content = read_file(fs, "/checkpoint")
    for position in range(len(content)):
        for bit in range(8):
            put(fs, "/changed", content[:position] + bytes([content[position] ^ 1 << bit]) + content[position + 1 :])
            same = read_offsets(fs, "/checkpoint") == salvaged_offsets(fs, "/changed")
            assert not is_checked(fs, "/changed") or same
    write_offsets(fs, "/checkpoint", offsets)
    assert not is_checked(fs, "/checkpoint")
    assert not is_checked(fs, "/none")


def test_no_checkpoint_is_an_empty_one() -> None:
    assert read_offsets(CrashFileSystem(), "/checkpoint") == {}


def test_an_empty_checkpoint_has_no_entries_as_kafka_makes_them_at_its_first_start() -> None:
    fs = CrashFileSystem()
    put(fs, "/checkpoint", b"")
    assert read_offsets(fs, "/checkpoint") == {}


@pytest.mark.parametrize(
    "content", [b"0\n", b"1\n0\n", b"0\n2\na 0 7\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"0\n1\n\xff\xfe\n"]
)
def test_what_is_no_checkpoint_is_a_storage_error_that_names_it(content: bytes) -> None:
    fs = CrashFileSystem()
    put(fs, "/checkpoint", content)
    with pytest.raises(StorageError, match="/checkpoint"):
        read_offsets(fs, "/checkpoint")


def written_to(directory: str, fs: CrashFileSystem) -> LeaderEpochs:
    epochs = LeaderEpochs(fs, directory, no_batches)
    epochs.assign(0, 0)
    epochs.assign(3, 42)
    return epochs


def test_epochs_begin_where_they_were_assigned() -> None:
    fs = CrashFileSystem()
    fs.mkdir("/t-0")
    fs.fsync_dir("/")
    assert LeaderEpochs(fs, "/t-0", no_batches).latest == -1
    epochs = written_to("/t-0", fs)
    assert not fs.exists("/t-0/leader-epoch-checkpoint")
    assert epochs.flushed_end(50) == 50
    assert read_file(fs, "/t-0/leader-epoch-checkpoint") == b"0\n2\n0 0\n3 42\n"
    again = LeaderEpochs(fs.after_cut(), "/t-0", no_batches)
    assert (again.latest, again.entries) == (3, ((0, 0), (3, 42)))


def test_an_epoch_that_must_be_in_the_file_first_is_there_before_it_begins() -> None:
    fs = CrashFileSystem()
    epochs = LeaderEpochs(fs, "/", no_batches)
    epochs.announce(2, 7)
    assert not fs.exists("/leader-epoch-checkpoint")
    epochs.is_written_first = True
    epochs.announce(2, 7)
    assert LeaderEpochs(fs.after_cut(), "/", no_batches).entries == epochs.entries == ((2, 7),)


def test_a_full_disk_holds_a_flush_below_the_first_epoch_that_the_file_lacks() -> None:
    fs = CrashFileSystem()
    epochs = written_to("/", fs)
    epochs.flushed_end(50)
    epochs.assign(4, 60)
    epochs.assign(5, 70)
    fs.capacity_bytes = fs.used_bytes
    assert (epochs.flushed_end(80), epochs.flushed_end(55), epochs.is_unwritten) == (60, 55, True)
    fs.capacity_bytes = None
    assert (epochs.flushed_end(80), epochs.is_unwritten) == (80, False)
    assert LeaderEpochs(fs.after_cut(), "/", no_batches).entries == epochs.entries


def test_epochs_that_the_file_lacks_are_those_of_the_batches() -> None:
    fs = CrashFileSystem()
    written_to("/", fs).flushed_end(50)
    epochs = LeaderEpochs(fs, "/", no_batches)
    epochs.take_from(headers_of([(50, 3), (60, 4), (70, 9), (80, 4), (90, 6)]))
    assert epochs.entries == ((0, 0), (3, 42), (4, 60), (6, 90)), "the next batch contradicts the epoch 9"
    assert (epochs.newest_found, epochs.is_unwritten) == (6, True)


def test_an_epoch_whose_first_batches_were_compacted_away_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    fs = CrashFileSystem()
    put(fs, "/leader-epoch-checkpoint", b"0\n3\n0 0\n1 4\n2 8\n")
    left = headers_of([(6, 1), (9, 2), (10, 2)])
    epochs = LeaderEpochs(fs, "/", lambda offset: [one for one in left if one.last_offset >= offset])
    assert epochs.entries == ((0, 0), (1, 4), (2, 8))
    assert not caplog.messages


def test_an_epoch_that_wrote_nothing_is_replaced_or_forgotten() -> None:
    fs = CrashFileSystem()
    epochs = LeaderEpochs(fs, "/", no_batches)
    epochs.assign(1, 10)
    epochs.assign(2, 10)
    assert epochs.entries == ((2, 10),)
    epochs.truncate(10)
    assert LeaderEpochs(fs, "/", no_batches).entries == ()


@pytest.mark.parametrize(
    "content",
    [
        b"0\n1\none 1\n",
        b"0\n1\n1\n",
        b"0\n1\n1 2 3\n",
        b"0\n2\n1 1\n",
        b"1\n1\n1 1\n",
        b"\xff",
        b"0\n1\n2147483647 1\n",
        b"0\n1\n99999999999 1\n",
        b"0\n1\n-1 1\n",
        b"0\n1\n1 -1\n",
        b"0\n2\n3 1\n2 5\n",
        b"0\n2\n3 1\n3 5\n",
        b"0\n2\n3 5\n4 5\n",
        b"0\n2\n3 6\n4 5\n",
    ],
)
def test_epochs_of_a_damaged_file_are_those_of_the_batches(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    fs = CrashFileSystem()
    put(fs, "/leader-epoch-checkpoint", content)
    headers = headers_of([(0, -1), (10, 2), (20, 2), (30, 2**31 - 1), (40, 1), (50, 5)])
    epochs = LeaderEpochs(fs, "/", lambda _: headers)
    assert epochs.entries == ((2, 10), (5, 50))
    assert epochs.newest_found == 5
    assert "the leader epochs are read from the log's batches" in caplog.text
    assert LeaderEpochs(fs, "/", no_batches).entries == epochs.entries, "the file is written again"


def test_a_folder_remembers_its_cluster_and_broker() -> None:
    fs = CrashFileSystem()
    claim_data_dir(fs, "/", cluster_id="abc=d:e", broker_id=4)
    claim_data_dir(fs.after_cut(), "/", cluster_id="abc=d:e", broker_id=4)
    with pytest.raises(InconsistentClusterIdError, match=r"meta.properties.*abc=d:e.*other"):
        claim_data_dir(fs, "/", cluster_id="other", broker_id=4)
    with pytest.raises(InconsistentClusterIdError, match=r"broker.id 4"):
        claim_data_dir(fs, "/", cluster_id="abc=d:e", broker_id=5)


def test_a_file_of_kafka_is_understood() -> None:
    fs = CrashFileSystem()
    put(fs, "/meta.properties", b"#\n#Sat Nov 21 13:44:11 UTC 2026\nbroker.id=1\nversion=0\ncluster.id=xyz\n")
    claim_data_dir(fs, "/", cluster_id="xyz", broker_id=1)


def test_a_partition_remembers_its_topics_id() -> None:
    fs = CrashFileSystem()
    topic_id = uuid.UUID("12345678-1234-5678-1234-56789abcdeff")
    assert read_topic_id(fs, "/") is None
    write_topic_id(fs, "/", topic_id)
    assert read_file(fs, "/partition.metadata") == b"version: 0\ntopic_id: EjRWeBI0VngSNFZ4mrze_w\n"
    assert read_topic_id(fs.after_cut(), "/") == topic_id


@pytest.mark.parametrize("content", [b"", b"version: 0\n", b"version: 0\ntopic_id: abc\n", b"\xff\n"])
def test_a_partition_metadata_without_an_id_is_a_storage_error(content: bytes) -> None:
    fs = CrashFileSystem()
    put(fs, "/partition.metadata", content)
    with pytest.raises(StorageError, match=r"partition\.metadata"):
        read_topic_id(fs, "/")
