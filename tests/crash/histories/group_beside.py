"""A group that ZooKeeper coordinates, beside a history of brokers: members join and are killed, and the checker judges.

The checked history has the operations of the senders and transactors and the events of the members. What other readers
do is judged with the whole history.
"""

import bisect
import itertools
import math
import re
from collections import defaultdict

from with_connector import Group, merged

from millrace_support.waiting import awaited
from millrace_tools.histories.check import check
from millrace_tools.histories.events import Action, Outcome, read_history
from millrace_tools.histories.finding import Anomaly

SENDERS = re.compile(r'"process": "[^"]*-(sender|transactor|usurped)-\d')
MEMBERS = 2


class GroupBeside(Group):
    """Two members, one of which is killed now and then, while another one joins."""

    def begin(self):
        """Starts the members, and returns once they own all partitions."""
        self.await_shares(*(self.join() for _ in range(MEMBERS)))

    def replace_oldest(self):
        """Kills the oldest member and starts another, without waiting for it, as brokers may be away."""
        self.living()[0].kill()
        self.join()

    def catch_up(self, file):
        """Waits until all acknowledged values are handed out, and ends the group; no member may have ended before."""
        file.seek(0)
        sent = {send.value for one in read_history(file) if one.outcome is Outcome.OK for send in one.sends()}
        awaited(lambda: sent <= self.handed() or None, "all that was acknowledged is handed out")
        assert [member.process.poll() for member in self.living()] == [None] * MEMBERS
        for member in self.living():
            member.leave()

    def operations(self, file):
        """Returns the history of the senders and of the group, in the order of time."""
        file.seek(0)
        return read_history(merged(filter(SENDERS.search, file), self.history_lines()))


def group_findings(operations):
    """Returns what is wrong with the group's history, a line for each finding."""
    return [*map(str, check(operations, allowed={Anomaly.WRITE_CYCLE})), *commits_ahead(operations)]


def commits_ahead(operations):
    """Yields a line for each commit that ended before an acknowledged record below its offset was handed out."""
    handed = times_of_hand_outs(operations)
    acknowledged = {
        partition: [(offset, handed.get((partition, offset), math.inf)) for offset in sorted(offsets)]
        for partition, offsets in acknowledged_offsets(operations).items()
    }
    latest = {
        partition: list(itertools.accumulate((time_ns for _, time_ns in each), max))
        for partition, each in acknowledged.items()
    }
    for operation in operations:
        for step in operation.ownings():
            if step.action is Action.COMMIT and operation.outcome is Outcome.OK:
                below = bisect.bisect_left(acknowledged.get(step.partition, []), (step.offset,))
                if below and latest[step.partition][below - 1] > operation.completed_ns:
                    yield f"{operation} commits {step.offset} of {step.partition}, and not all below was handed out"


def acknowledged_offsets(operations):
    """Returns the offsets of values that were acknowledged, or whose transaction was committed, by partition."""
    offsets = defaultdict(set)
    for operation in operations:
        for send in operation.sends():
            if operation.outcome is Outcome.OK and send.offset is not None:
                offsets[send.partition].add(send.offset)
    return offsets


def times_of_hand_outs(operations):
    """Returns the time in nanoseconds at which each (partition, offset) was first handed out."""
    times = {}
    for operation in operations:
        for step in operation.ownings():
            if step.action is Action.HAND_OUT:
                key = step.partition, step.offset
                times[key] = min(times.get(key, operation.invoked_ns), operation.invoked_ns)
    return times
