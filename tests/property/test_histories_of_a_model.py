"""Histories that a correct log could have given show no anomaly; spoiled in one place, they show the one put there."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_tools.histories.check import check
from millrace_tools.histories.events import Action, Operation, Outcome, Poll, Send
from millrace_tools.histories.finding import Anomaly

PARTITIONS = ("t-0", "t-1", "u-0")


class ModelLog:
    """A log with transactions, one after the other, and readers of committed records; `operations` is its history."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.committed = {partition: [] for partition in PARTITIONS}  # (offset, value)
        self.end = dict.fromkeys(PARTITIONS, 0)
        self.positions = {}
        self.operations = []
        self.values = 0

    def run(self, steps):
        for _ in range(steps):
            self.random.choices((self.write, self.poll, self.assign), (4, 4, 1))[0]()
        for partition in PARTITIONS:
            self.read("last", partition, len(self.committed[partition]))
        return self.operations

    def write(self):
        outcome = self.random.choices(list(Outcome), (6, 2, 2))[0]
        appended = outcome is Outcome.OK or (outcome is Outcome.INFO and self.random.random() < 0.5)
        sends = [self._send(appended, told=outcome is Outcome.OK) for _ in range(self.random.randint(1, 4))]
        for partition in {send.partition for send in sends}:
            self.end[partition] += 1  # the marker's offset
        self._note(f"writer-{self.random.randrange(3)}", Action.TRANSACTION, outcome, sends)

    def _send(self, appended, *, told):
        partition = self.random.choice(PARTITIONS)
        value, offset = self.values, self.end[partition]
        self.values += 1
        self.end[partition] += 1
        if appended:
            self.committed[partition].append((offset, value))
        return Send(partition, value, offset if told else None)

    def poll(self):
        self.read(f"reader-{self.random.randrange(3)}", self.random.choice(PARTITIONS), self.random.randint(0, 5))

    def read(self, process, partition, count):
        at = self.positions.get((process, partition), 0)
        records = self.committed[partition][at : at + count]
        self.positions[process, partition] = at + len(records)
        self._note(process, Action.POLL, Outcome.OK, [Poll(partition, tuple(records))])

    def assign(self):
        process = f"reader-{self.random.randrange(3)}"
        for partition in PARTITIONS:
            self.positions[process, partition] = 0
        self._note(process, Action.ASSIGN, Outcome.OK, [])

    def _note(self, process, action, outcome, steps):
        index = len(self.operations)
        self.operations.append(
            Operation(
                index=index,
                process=process,
                action=action,
                outcome=outcome,
                invoked_ns=2 * index,
                completed_ns=2 * index + 1,
                steps=tuple(steps),
            )
        )


@settings(max_examples=60, deadline=None)
@given(st.integers(), st.integers(1, 60))
def test_correct_histories_show_no_anomaly(seed, steps):
    assert check(ModelLog(seed).run(steps)) == []


def spoiled(operations, which, step):
    """The history with one step of one operation put in its place."""
    old = operations[which]
    facts = {
        name: getattr(old, name) for name in ("index", "process", "action", "outcome", "invoked_ns", "completed_ns")
    }
    return [*operations[:which], Operation(**facts, steps=(step,)), *operations[which + 1 :]]


def last_reads(operations):
    """The polls of the reader who reads everything, with at least three records."""
    whole = [(op.index, next(op.polls())) for op in operations if op.process == "last"]
    return [(index, poll) for index, poll in whole if len(poll.records) > 2]


SPOILT = {
    Anomaly.POLL_SKIP: lambda records: records[:1] + records[2:],
    Anomaly.NON_MONOTONIC_POLL: lambda records: (records[1], records[0], *records[2:]),
    Anomaly.DUPLICATE: lambda records: (*records, (records[-1][0] + 100, records[0][1])),
    Anomaly.INCONSISTENT_OFFSET: lambda records: ((records[0][0], records[1][1]), *records[1:]),
    Anomaly.PHANTOM: lambda records: (*records, (records[-1][0] + 100, "no one's")),
}


@pytest.mark.parametrize("anomaly", SPOILT)
@settings(max_examples=20, deadline=None)
@given(st.integers())
def test_a_spoiled_poll_is_found(anomaly, seed):
    operations = ModelLog(seed).run(60)
    for which, poll in last_reads(operations):
        spoiled_poll = Poll(poll.partition, SPOILT[anomaly](poll.records))
        found = {finding.anomaly for finding in check(spoiled(operations, which, spoiled_poll))}
        # What only the last reader read is not known to lie where it was left out.
        known = any(poll.records[1] in other.records for op in operations[:which] for other in op.polls())
        assert anomaly in found or (anomaly is Anomaly.POLL_SKIP and not known)


@settings(max_examples=20, deadline=None)
@given(st.integers())
def test_what_is_taken_out_of_every_poll_is_lost(seed):
    operations = ModelLog(seed).run(40)
    acknowledged = {send.value for op in operations if op.outcome is Outcome.OK for send in op.sends()}
    for index, poll in last_reads(operations):
        offset, value = poll.records[0]
        without = operations
        for op in operations[: index + 1]:
            for other in op.polls():
                if (offset, value) in other.records:
                    left = tuple(record for record in other.records if record[0] != offset)
                    without = spoiled(without, op.index, Poll(other.partition, left))
        found = {finding.anomaly for finding in check(without)}
        assert Anomaly.LOST_WRITE in found or value not in acknowledged


def test_a_long_history_is_judged_in_near_linear_time():
    """Calls counted in place of seconds: twice the history, not three times the calls."""
    assert counted_calls(2000) < 3 * counted_calls(1000)


def counted_calls(steps):
    import cProfile
    import pstats

    operations = ModelLog(1).run(steps)
    profile = cProfile.Profile()
    profile.runcall(check, operations)
    return pstats.Stats(profile).total_calls
