"""A broker makes no sync and no change of names on its event loop, while requests of many kinds are served.

Each of these would hold up everybody for as long as the disk takes: it belongs in a thread.
"""

from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_support.waiting import until

RECORDING_DOOR = """
import inspect, sys, threading
from pathlib import Path
from millrace.fs import OsFileSystem

WORKS = ("fsync", "fsync_dir", "sync_tree", "rename", "mkdir", "unlink", "rmdir", "listdir")
started, notes = map(Path, {files!r})


def recorded(name, work):
    def call(self, *args, **kwargs):
        if threading.current_thread() is threading.main_thread() and started.exists():
            with notes.open("a") as file:
                print(name, *(one.function for one in inspect.stack(0)[1:8]), sep=" < ", file=file)
        return work(self, *args, **kwargs)

    return call


for name in WORKS:
    setattr(OsFileSystem, name, recorded(name, getattr(OsFileSystem, name)))
from millrace_broker.__main__ import main
sys.exit(main())
"""
PROPERTIES = {
    "log.segment.bytes": "2000",
    "log.retention.bytes": "4000",
    "log.retention.check.interval.ms": "100",
    "log.flush.scheduler.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.segment.delete.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
CONFIGS = {
    "plain": {},
    "synced": {"flush.messages": "1"},
    "by-time": {"flush.ms": "10"},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
}


def serve_all_kinds(cluster):
    admin, producer, consumer = Admin(cluster), SyncProducer(cluster), SimpleConsumer(cluster)
    for name, config in CONFIGS.items():
        admin.create_topic(name, 1, config=config)
    for number in range(100):
        for name in CONFIGS:
            producer.send(name, 0, [NewRecord(bytes(100), b"%d" % (number % 5))])
    consumer.commit_offsets("g", {("plain", 0): 3})
    until(lambda: consumer.fetch("plain", 0, 99).log_start_offset)
    admin.delete_records("synced", 0, 95)
    admin.delete_topic("by-time")


def test_the_event_loop_waits_for_no_disk(tmp_path):
    started, notes = tmp_path / "started", tmp_path / "notes"
    program = "-c", RECORDING_DOOR.format(files=[str(started), str(notes)])
    with BrokerProcess(tmp_path / "data", program=program, properties=PROPERTIES) as broker:
        notes.touch()
        started.touch()
        with Cluster(broker.bootstrap) as cluster:
            serve_all_kinds(cluster)
        started.unlink()
    assert set(notes.read_text().splitlines()) == set()
