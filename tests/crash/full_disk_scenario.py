"""A broker on a small file system, filled to the last byte; test_broker_small_disk runs it in a mount namespace.

python full_disk_scenario.py MOUNTPOINT
"""

import errno
import os
import sys
from pathlib import Path

from millrace.client import cluster as client_cluster
from millrace.client.cluster import Cluster
from millrace.client.simple_consumer import SimpleConsumer
from millrace.client.sync_producer import SyncProducer
from millrace.errors import StorageError
from millrace.records.record import NewRecord, decode_records
from millrace.testing.broker import BrokerProcess

TOPIC = "events"
VALUE_BYTES = 20_000
SPARE_BYTES = 1_000_000
SETTINGS = {"log.segment.bytes": "300000", "log.flush.interval.messages": "1", "log.index.interval.bytes": "4096"}


def value(number: int) -> bytes:
    return b"%06d" % number + os.urandom(8) * (VALUE_BYTES // 8)


def fill_to_the_last_byte(path: Path) -> None:
    with path.open("ab", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def read_all(cluster: Cluster) -> list[bytes | None]:
    consumer = SimpleConsumer(cluster)
    offset, end, values = consumer.earliest(TOPIC, 0), consumer.latest(TOPIC, 0), []
    while offset < end:
        found = decode_records(consumer.fetch(TOPIC, 0, offset).records)
        records = [each for each in found if each.offset >= offset]
        values += [each.value for each in records]
        offset = records[-1].offset + 1
    return values


class Scenario:
    """What was acknowledged must be there, whatever happens."""

    def __init__(self, mountpoint: Path) -> None:
        self.ballast = mountpoint / "ballast"
        self.spare = mountpoint / "spare"
        self.spare.write_bytes(bytes(SPARE_BYTES))
        self.broker = BrokerProcess(mountpoint / "data", properties=SETTINGS)
        self.sent: list[bytes | None] = []

    def append(self) -> None:
        content = value(len(self.sent))
        with Cluster(self.broker.bootstrap) as cluster:
            assert SyncProducer(cluster).send(TOPIC, 0, [NewRecord(content)]) == len(self.sent)
        self.sent.append(content)

    def is_refused(self) -> bool:
        try:
            self.append()
        except StorageError as error:
            if "No space left" not in str(error):
                raise
            return True
        return False

    def check(self) -> None:
        with Cluster(self.broker.bootstrap) as cluster:
            assert read_all(cluster) == self.sent

    def run(self) -> None:
        while not self.is_refused():
            pass
        assert len(self.sent) > 20
        fill_to_the_last_byte(self.ballast)
        assert self.is_refused()
        self.check()
        for end in (self.broker.stop, self.broker.kill):
            end()
            fill_to_the_last_byte(self.ballast)
            self.broker.start()
            self.check()
            fill_to_the_last_byte(self.ballast)  # indexes that are rebuilt give room back
            assert self.is_refused()
            self.check()
        self.spare.unlink()
        for _ in range(3):
            self.append()
        self.check()
        self.broker.kill()
        self.broker.start()
        self.check()
        self.append()
        assert "is offline" not in self.broker.read_log()


if __name__ == "__main__":
    client_cluster.RETRY_ATTEMPTS = 2  # a full disk stays full
    scenario = Scenario(Path(sys.argv[1]))
    with scenario.broker:
        scenario.run()
