"""What the processes of a history have in common: their names, the values that they send, and their restarts."""

import itertools
import random
import sys
import threading
import traceback
from collections import defaultdict

from millrace_tools.histories.events import Poll, Send

PATIENCE_S = 60
PAUSE_S = 0.02
AT_MOST = 5
ABORTED_ONE_IN = 5
MAX_OPEN_S = 0.1  # of a transaction that has written, while others read


class StaleError(Exception):
    """A client can't go on, and another one takes its place under another name."""


class Workload:
    """The topic that the processes write and read, the recorder of their history, and the event that stops them."""

    def __init__(self, bootstrap, recorder, topic, partitions):
        self.bootstrap, self.recorder, self.topic = bootstrap, recorder, topic
        self.partitions = range(partitions)
        self.stopping = threading.Event()
        self._values, self._transactions = itertools.count(), itertools.count()

    def name_of(self, partition):
        return f"{self.topic}-{partition}"

    def new_value(self):
        """Returns a value that has not been returned before."""
        return next(self._values)

    def some_sends(self):
        """Returns one to five pairs (partition, value) to send."""
        return [(random.choice(self.partitions), self.new_value()) for _ in range(random.randint(1, AT_MOST))]

    def is_to_commit(self):
        """Returns whether to commit the next transaction; every fifth is aborted."""
        return next(self._transactions) % ABORTED_ONE_IN != 1

    def sends(self, some, offsets=None):
        """Returns the steps that record sends of (partition, value); `offsets` has the known offsets by value."""
        return [Send(self.name_of(partition), value, (offsets or {}).get(value)) for partition, value in some]

    def polls(self, records):
        """Returns the steps that record a poll of (partition, offset, value) each."""
        found = defaultdict(list)
        for partition, offset, value in records:
            found[self.name_of(partition)].append((offset, int(value)))
        return [Poll(name, tuple(some)) for name, some in found.items()]


class Process(threading.Thread):
    """Runs `play(workload, process)` under one name after another, until the workload stops."""

    def __init__(self, workload, role, play, errors):
        super().__init__(name=role, daemon=True)
        self.workload, self.role, self.play, self.errors = workload, role, play, errors
        self.failure = None

    def run(self):
        for number in itertools.count(1):
            if self.workload.stopping.is_set():
                return
            try:
                self.play(self.workload, f"{self.role}-{number}")
            except self.errors:
                self.workload.stopping.wait(PAUSE_S)
            except BaseException as error:
                self.failure = error
                raise

    def said(self):
        """Returns the thread's name, the error that it raised if there was one, and its stack while it still runs."""
        frame = sys._current_frames().get(self.ident)
        return f"{self.name}: {self.failure!r}\n" + "".join(traceback.format_stack(frame) if frame else [])
