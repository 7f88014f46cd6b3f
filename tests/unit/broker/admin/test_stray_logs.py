"""Which of its logs a broker tells of as stray, and why."""

from uuid import UUID

import pytest

from millrace.records.record import BatchProducer, NewRecord, encode_batch
from millrace_broker.admin.stray_requests import OfflineLog, offline_logs, stray_logs, stray_reason
from millrace_broker.cluster.metadata_image import MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.storage import LogManager, TopicPartition
from millrace_support.clock import ManualClock
from millrace_support.crash_fs import CrashFileSystem

ME, OTHER = 1, 2
ID, NEW_ID = UUID(int=7), UUID(int=8)


def image(*replicas, topic_id=ID):
    infos = tuple(PartitionInfo(index, one[0] if one else -1, 0, one, one) for index, one in enumerate(replicas))
    return MetadataImage("c", ME, {}, {"t": TopicInfo("t", topic_id, infos, {})} if replicas else {})


@pytest.mark.parametrize(
    ("seen", "topic_id", "reason"),
    [
        (image(), ID, "no such topic"),
        (image((ME,), (OTHER, ME)), ID, None),
        (image((ME,), (OTHER, ME)), None, None),
        (image((ME,), (OTHER, ME), topic_id=NEW_ID), ID, "another topic has its name"),
        (image((ME,)), ID, "no such partition"),
        (image((ME,), (OTHER,)), ID, "on other brokers"),
        (image((ME,), (), (ME,)), ID, None),
    ],
)
def test_a_log_is_stray_where_the_cluster_does_not_assign_it_here(seen, topic_id, reason):
    assert stray_reason(seen, ME, TopicPartition("t", 1), topic_id) == reason


def opened(fs):
    logs = LogManager(fs, ManualClock(), ["/data", "/more"], {}, "c" * 22, ME)
    logs.start()
    return logs


def test_a_stray_log_is_told_with_all_that_an_adoption_asks_for():
    fs = CrashFileSystem()
    logs, now_ms = opened(fs), ManualClock().now_ms()
    log = logs.create(TopicPartition("t", 0), ID, {})
    for epoch in (3, 5):
        producer = BatchProducer(40 + epoch, 0, 0)
        log.append(encode_batch([NewRecord(b"v", None, now_ms)] * 2, producer=producer), leader_epoch=epoch)
    logs.create(TopicPartition("u", 0), NEW_ID, {})
    logs.close()
    again = opened(fs)
    (stray,) = stray_logs(again, image(), ME, {"t"})
    assert (stray.topic_partition, stray.topic_id, stray.reason) == (("t", 0), ID, "no such topic")
    assert (stray.log_start_offset, stray.log_end_offset) == (0, 4)
    assert (stray.leader_epochs, stray.newest_leader_epoch) == (((3, 0), (5, 2)), 5)
    assert (stray.first_free_producer_id, stray.size_bytes > 0) == (46, True)
    assert [one.topic_partition.topic for one in stray_logs(again, image(), ME, None)] == ["t", "u"]
    assert offline_logs(again, image(), ME, None) == []


def test_logs_of_a_folder_that_has_failed_are_told_apart():
    logs = opened(CrashFileSystem())
    key = TopicPartition("t", 0)
    folder = logs.create(key, ID, {}).directory.removesuffix("/t-0")
    logs.dirs.by_path(folder).health.fail("the disk is gone")
    assert stray_logs(logs, image(), ME, None) == []
    assert offline_logs(logs, image(), ME, None) == [OfflineLog(key, folder)]
    assert offline_logs(logs, image(), ME, {"u"}) == []
    assert offline_logs(logs, image((ME,)), ME, None) == []
