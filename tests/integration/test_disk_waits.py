"""Which syncs and changes of files a broker makes on its event loop, while requests of many kinds are served.

Each of these holds up everybody for as long as the disk takes, so the list is closed: what is new belongs in a thread.
"""

from millrace.client import Admin, Cluster, SimpleConsumer, SyncProducer
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace.wire.api import ApiKey
from millrace_support.raw import RawConnection
from millrace_support.waiting import until

ON_THE_LOOP = {
    "roll": ["open", "truncate"],  # new files, not synced: microseconds, beside syncs of others up to 3 ms
}
"""The step that asks for it, and the work."""
RECORDING_DOOR = """
import inspect, sys, threading
from pathlib import Path
from millrace.fs import OsFileSystem

WORKS = (
    "open", "truncate", "reserve", "fsync", "fsync_dir", "sync_tree", "rename", "mkdir", "unlink", "rmdir", "listdir",
)
AMONG = ("roll",)
started, notes = map(Path, {files!r})


def recorded(name, work):
    def call(self, *args, **kwargs):
        counts = name != "open" or kwargs.get("create")
        if counts and threading.current_thread() is threading.main_thread() and started.exists():
            callers = [one.function for one in inspect.stack(0)]
            asking = [one for one in callers if one in AMONG][-1:] or callers[1:8]
            with notes.open("a") as file:
                print(name, *asking, file=file)
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


def move(bootstrap, topic, data_dirs):
    """Has the broker move a partition to the other directory, and waits until it is there."""
    [here] = [path for path in data_dirs if (path / f"{topic}-0").exists()]
    [there] = [path for path in data_dirs if path != here]
    fields = {"dirs": [{"path": str(there), "topics": [{"name": topic, "partitions": [0]}]}]}
    with RawConnection(bootstrap) as connection:
        connection.request(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, fields)
    until((there / f"{topic}-0").exists)


def serve_all_kinds(cluster, bootstrap, data_dirs):
    admin, producer, consumer = Admin(cluster), SyncProducer(cluster), SimpleConsumer(cluster)
    for name, config in CONFIGS.items():
        admin.create_topic(name, 1, config=config)
    for number in range(100):
        for name in CONFIGS:
            producer.send(name, 0, [NewRecord(bytes(100), b"%d" % (number % 5))])
    consumer.commit_offsets("g", {("plain", 0): 3})
    until(lambda: consumer.fetch("plain", 0, 99).log_start_offset)
    admin.delete_records("synced", 0, 95)
    move(bootstrap, "plain", data_dirs)
    admin.delete_topic("by-time")


def test_the_event_loop_waits_for_no_disk_but_for_what_is_listed(tmp_path):
    started, notes = tmp_path / "started", tmp_path / "notes"
    program = "-c", RECORDING_DOOR.format(files=[str(started), str(notes)])
    data_dirs = tmp_path / "one", tmp_path / "two"
    with BrokerProcess(data_dirs[0], more_data_dirs=data_dirs[1:], program=program, properties=PROPERTIES) as broker:
        notes.touch()
        started.touch()
        with Cluster(broker.bootstrap) as cluster:
            serve_all_kinds(cluster, broker.bootstrap, data_dirs)
        started.unlink()
    expected = {f"{work} {step}" for step, works in ON_THE_LOOP.items() for work in works}
    assert set(notes.read_text().splitlines()) == expected
