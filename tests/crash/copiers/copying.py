"""Copying from topic to topic while things fail: the clients that copy, and the reader of what they have copied.

The client NAME copies each partition of NAME-in to that of NAME-out.
"""

import subprocess
import threading
from collections import defaultdict

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

PARTITIONS = 2
PATIENCE_S = 600


class Copier(threading.Thread):
    """Runs a client in a process of its own, and starts it again whenever it ends, until `stop` is called."""

    def __init__(self, name, command, log):
        super().__init__(name=name, daemon=True)
        self.command, self.log = command, log
        self.stopping, self.process = threading.Event(), None

    def run(self):
        with self.log.open("wb") as log:
            while not self.stopping.is_set():
                self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
                self.process.wait()

    def kill(self):
        if self.process is not None:
            self.process.kill()

    def stop(self):
        self.stopping.set()
        while self.is_alive():
            self.kill()
            self.join(0.1)


class Reader(threading.Thread):
    """Reads all committed records of all destination topics, and counts those of each."""

    def __init__(self, bootstrap, names):
        super().__init__(daemon=True)
        self.consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed",
            "enable.auto.commit": False,
        })  # fmt: skip
        places = [(f"{name}-out", partition) for name in names for partition in range(PARTITIONS)]
        self.consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
        self.names, self.found, self.counts = names, defaultdict(list), dict.fromkeys(names, 0)
        self.progress, self.stopping = threading.Condition(), threading.Event()

    def run(self):
        while not self.stopping.is_set():
            messages = [one for one in self.consumer.consume(1000, timeout=0.1) if not one.error()]
            with self.progress:
                for one in messages:
                    self.found[one.topic(), one.partition()].append(int(one.value()))
                    self.counts[one.topic().removesuffix("-out")] += 1
                self.progress.notify_all()
        self.consumer.close()

    def await_counts(self, wanted):
        """Waits until the reader has at least `wanted[name]` records of the topic NAME-out, for each client NAME."""
        with self.progress:
            came = self.progress.wait_for(
                lambda: all(self.counts[name] >= wanted[name] for name in self.names), PATIENCE_S
            )
            assert came, f"wanted {wanted}, came {self.counts}"

    def copied(self, name):
        """Returns, for each partition, the list of values that one client has copied."""
        return [self.found[f"{name}-out", partition] for partition in range(PARTITIONS)]

    def stop(self):
        self.stopping.set()
        self.join()
