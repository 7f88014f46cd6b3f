"""Each anomaly has a smallest history that shows it and nothing else, and good histories show none."""

from __future__ import annotations

import json

import pytest

from millrace_tools.histories.check import check
from millrace_tools.histories.events import HistoryError, Outcome, read_history
from millrace_tools.histories.finding import Anomaly


class Told:
    """Writes a history, one operation after the other, or several at once."""

    def __init__(self):
        self.lines = []
        self.time_ns = 0

    def event(self, **fields):
        self.time_ns += 1
        self.lines.append(json.dumps({"time_ns": self.time_ns, **fields}))
        return self

    def begin(self, process, action, *steps, **fields):
        return self.event(process=process, event="invoke", action=action, steps=steps, **fields)

    def end(self, process, *steps, outcome="ok", **fields):
        return self.event(process=process, event=outcome, steps=steps, **fields)

    def send(self, process, partition, value, offset):
        return self.begin(process, "send", ["send", partition, value]).end(process, ["send", partition, value, offset])

    def poll(self, process, partition, *records):
        return self.begin(process, "poll").end(process, ["poll", partition, records])

    def transaction(self, process, *steps, outcome="ok"):
        return self.begin(process, "transaction").end(process, *steps, outcome=outcome)

    def own(self, process, action, *words, group=""):
        return self.begin(process, action, group=group).end(process, [action, *words])

    def found(self, **options):
        return check(read_history(self.lines), **options)


def good_history():
    told = Told().send("p", "t-0", "a", 0)
    told.transaction("q", ["send", "t-0", "b", 1], ["send", "t-0", "c", 2], ["send", "t-1", "x", 0])
    told.poll("r", "t-0", (0, "a"), (1, "b")).poll("r", "t-0", (2, "c")).poll("r", "t-1", (0, "x"))
    return told


BAD = {
    Anomaly.INCONSISTENT_OFFSET: Told()
    .send("p", "t", "a", 0)
    .poll("r", "t", (0, "b"), (1, "a"))
    .send("q", "t", "b", 0),
    Anomaly.DUPLICATE: Told().send("p", "t", "a", 0).poll("r", "t", (0, "a"), (1, "a")),
    Anomaly.PHANTOM: Told().poll("r", "t", (0, "a")),
    Anomaly.LOST_WRITE: Told().send("p", "t", "a", 0).send("p", "t", "b", 1).poll("r", "t", (1, "b")),
    Anomaly.UNSEEN: Told().send("p", "t", "a", 0).send("p", "t", "b", 1).poll("r", "t", (0, "a")),
    Anomaly.ABORTED_READ: Told().transaction("p", ["send", "t", "a", 0], outcome="fail").poll("r", "t", (0, "a")),
    Anomaly.INTERMEDIATE_READ: Told()
    .begin("p", "transaction", ["send", "t", "a"])
    .poll("r", "t", (0, "a"))
    .end("p", ["send", "t", "a", 0], committing_ns=4),
    Anomaly.POLL_SKIP: Told()
    .send("p", "t", "a", 0)
    .send("p", "t", "b", 1)
    .send("p", "t", "c", 2)
    .poll("q", "t", (0, "a"), (1, "b"), (2, "c"))
    .poll("r", "t", (0, "a"))
    .poll("r", "t", (2, "c")),
    Anomaly.NON_MONOTONIC_POLL: Told()
    .send("p", "t", "a", 0)
    .send("p", "t", "b", 1)
    .poll("r", "t", (0, "a"), (1, "b"))
    .poll("r", "t", (0, "a")),
    Anomaly.NON_MONOTONIC_SEND: Told()
    .transaction("p", ["send", "t", "a", 1], ["send", "t", "b", 0])
    .poll("r", "t", (0, "b"), (1, "a")),
    Anomaly.REAL_TIME_ORDER: Told().send("p", "t", "a", 1).send("q", "t", "b", 0).poll("r", "t", (0, "b"), (1, "a")),
    Anomaly.WRITE_CYCLE: Told()
    .begin("p", "transaction")
    .begin("q", "transaction")
    .end("p", ["send", "t", "a", 0], ["send", "u", "b", 1])
    .end("q", ["send", "t", "c", 1], ["send", "u", "d", 0])
    .poll("r", "t", (0, "a"), (1, "c"))
    .poll("r", "u", (0, "d"), (1, "b")),
    Anomaly.CIRCULAR_INFORMATION_FLOW: Told()
    .begin("p", "transaction")
    .begin("q", "transaction")
    .end("p", ["send", "t", "a", 0], ["poll", "u", [(0, "b")]])
    .end("q", ["send", "u", "b", 0], ["poll", "t", [(0, "a")]]),
    Anomaly.OWNERSHIP_OVERLAP: Told()
    .own("a", "claim", "t", 5)
    .own("b", "claim", "t", 7)
    .own("a", "hand-out", "t", 5, 0),
    Anomaly.UNOWNED_HAND_OUT: Told()
    .own("a", "claim", "t", 5)
    .own("a", "release", "t", 5)
    .own("a", "hand-out", "t", 5, 0),
    Anomaly.CLAIM_REGRESSION: Told().own("a", "claim", "t", 5).own("b", "claim", "t", 4),
    Anomaly.FENCED_COMMIT: Told().own("a", "claim", "t", 5).own("b", "claim", "t", 7).own("a", "commit", "t", 5, 1),
    Anomaly.COMMIT_REGRESSION: Told()
    .own("a", "claim", "t", 5)
    .own("a", "commit", "t", 5, 9)
    .own("a", "commit", "t", 5, 8),
    Anomaly.LOST_COMMIT: Told().own("a", "commit", "t", None, 9).own("b", "committed", "t", None, 8),
}


# Of two values at one offset, one is at two offsets.
BESIDE = {Anomaly.INCONSISTENT_OFFSET: {Anomaly.DUPLICATE}}


@pytest.mark.parametrize("anomaly", Anomaly)
def test_each_anomaly_is_found_in_its_smallest_history(anomaly):
    assert {finding.anomaly for finding in BAD[anomaly].found()} == {anomaly} | BESIDE.get(anomaly, set())


def test_a_good_history_shows_none():
    assert good_history().found() == []


def test_commits_without_a_token_are_judged_by_their_offsets():
    told = Told().own("a", "commit", "t", None, 8).own("b", "committed", "t", None, 8).own("b", "commit", "t", None, 9)
    assert told.found() == []
    told.own("a", "commit", "t", None, 8)
    assert [finding.anomaly for finding in told.found()] == [Anomaly.COMMIT_REGRESSION]


@pytest.mark.parametrize("action", ["commit", "committed"])
def test_each_group_has_committed_for_itself(action):
    told = Told().own("a", "commit", "t", None, 9, group="one").own("b", action, "t", None, 8, group="other")
    assert told.found() == []
    assert len(told.own("b", action, "t", None, 8, group="one").found()) == 1


def test_what_was_committed_meanwhile_may_be_told_or_not():
    told = Told().own("a", "commit", "t", None, 8).begin("b", "committed").own("a", "commit", "t", None, 9)
    assert told.end("b", ["committed", "t", None, 8]).found() == []


def test_owners_one_after_the_other_are_well():
    told = Told().own("a", "claim", "t", 5).own("a", "hand-out", "t", 5, 0).own("a", "commit", "t", 5, 1)
    told.own("a", "release", "t", 5).own("b", "claim", "t", 7).own("b", "hand-out", "t", 7, 0).own(
        "b", "commit", "t", 7, 1
    )
    assert told.found() == []


def test_what_overlaps_a_claim_in_time_proves_nothing():
    told = Told().own("a", "claim", "t", 5).begin("b", "claim").begin("a", "hand-out")
    told.end("b", ["claim", "t", 7]).end("a", ["hand-out", "t", 5, 0])
    assert told.found() == []


def test_a_hand_out_without_any_claim_is_found():
    found = Told().own("a", "hand-out", "t", 5, 0).found()
    assert [finding.anomaly for finding in found] == [Anomaly.UNOWNED_HAND_OUT]


def test_a_hand_out_before_its_claim_is_found():
    told = Told().own("a", "hand-out", "t", 5, 0).own("a", "claim", "t", 5)
    assert [finding.anomaly for finding in told.found()] == [Anomaly.UNOWNED_HAND_OUT]


def test_a_hand_out_within_its_claim_is_well():
    told = Told().begin("a", "claim").own("b", "hand-out", "t", 5, 0).end("a", ["claim", "t", 5])
    assert told.found() == []


def test_two_claims_of_one_token_are_found():
    told = Told().own("a", "claim", "t", 5).own("b", "claim", "t", 5)
    told.own("a", "hand-out", "t", 5, 0).own("b", "hand-out", "t", 5, 0)
    assert [finding.anomaly for finding in told.found()] == [Anomaly.CLAIM_REGRESSION]


def test_sends_at_the_same_time_that_are_no_transactions_may_cross():
    told = Told().begin("p", "send").begin("q", "send")
    told.end("p", ["send", "t", "a", 0], ["send", "u", "a", 1]).end("q", ["send", "t", "b", 1], ["send", "u", "b", 0])
    told.poll("r", "t", (0, "a"), (1, "b")).poll("r", "u", (0, "b"), (1, "a"))
    assert told.found() == []


def test_a_part_of_a_transaction_is_an_intermediate_read():
    told = Told().transaction("p", *(["send", "t", value, offset] for offset, value in enumerate("abc")))
    told.poll("q", "t", (0, "a"), (1, "b"), (2, "c")).poll("r", "t", (0, "a"), (2, "c"))
    assert Anomaly.INTERMEDIATE_READ in {finding.anomaly for finding in told.found()}


def test_a_poll_that_ends_within_a_transaction_is_none():
    told = Told().transaction("p", *(["send", "t", value, offset] for offset, value in enumerate("abc")))
    told.poll("r", "t", (0, "a"), (1, "b")).poll("r", "t", (2, "c"))
    assert told.found() == []


def test_offsets_of_markers_and_of_aborted_sends_are_no_skip():
    told = Told().transaction("p", ["send", "t", "a", 0], outcome="fail").transaction("p", ["send", "t", "b", 2])
    told.send("p", "t", "c", 4).poll("r", "t", (2, "b")).poll("r", "t", (4, "c"))
    assert told.found() == []


@pytest.mark.parametrize("action", ["assign", "subscribe"])
def test_who_is_assigned_anew_may_read_again(action):
    told = Told().send("p", "t", "a", 0).send("p", "t", "b", 1).poll("r", "t", (0, "a"), (1, "b"))
    told.begin("r", action, partitions=["t"]).end("r", partitions=["t"]).poll("r", "t", (0, "a"), (1, "b"))
    assert told.found() == []


def test_another_partition_assigned_anew_excuses_nothing():
    told = Told().send("p", "t", "a", 0).poll("r", "t", (0, "a"))
    told.begin("r", "assign", partitions=["u"]).end("r", partitions=["u"]).poll("r", "t", (0, "a"))
    assert [finding.anomaly for finding in told.found()] == [Anomaly.NON_MONOTONIC_POLL]


def test_a_send_of_unknown_end_may_be_there_or_not():
    told = Told().begin("p", "send", ["send", "t", "a"]).end("p", ["send", "t", "a", None], outcome="info")
    assert told.found() == []
    assert told.poll("r", "t", (0, "a")).found() == []


def test_sends_at_the_same_time_may_lie_in_any_order():
    told = Told().begin("p", "send").begin("q", "send").end("p", ["send", "t", "a", 1]).end("q", ["send", "t", "b", 0])
    assert told.poll("r", "t", (0, "b"), (1, "a")).found() == []


def test_a_value_sent_again_after_an_abort_is_not_aborted():
    told = Told().transaction("p", ["send", "t", "a", 0], outcome="fail").transaction("p", ["send", "t", "a", 2])
    assert told.poll("r", "t", (2, "a")).found() == []


def test_what_is_allowed_is_passed_over():
    assert BAD[Anomaly.WRITE_CYCLE].found(allowed={Anomaly.WRITE_CYCLE}) == []
    cycle_of_reads = BAD[Anomaly.CIRCULAR_INFORMATION_FLOW].found(allowed={Anomaly.WRITE_CYCLE})
    assert [finding.anomaly for finding in cycle_of_reads] == [Anomaly.CIRCULAR_INFORMATION_FLOW]


def test_a_read_against_the_order_of_writes_is_a_circular_flow():
    told = Told().begin("p", "transaction").begin("q", "transaction")
    told.end("p", ["send", "t", "a", 0], ["poll", "u", [(0, "b")]]).end(
        "q", ["send", "t", "c", 1], ["send", "u", "b", 0]
    )
    told.poll("r", "t", (0, "a"), (1, "c"))
    assert [finding.anomaly for finding in told.found()] == [Anomaly.CIRCULAR_INFORMATION_FLOW]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["{"], "line 1"),
        (["[]"], "an event is an object"),
        ([b"\xff"], "line 1 of the history: 'utf-8' codec can't decode"),
        (["", "[" * 100_000], "line 2 of the history: .*recursion"),
        (['{"process": "p", "event": "invoke", "action": "send"}'], "'time_ns' is missing"),
        (['{"time_ns": 1, "process": "p", "event": "ok"}'], "nothing that could end"),
        (['{"time_ns": 1, "process": "p", "event": "invoke", "action": "jump"}'], "'jump' is not a valid Action"),
        (
            ['{"time_ns": 1, "process": "p", "event": "invoke", "action": "send", "steps": [["send", "t"]]}'],
            "no step of an operation",
        ),
        (
            ['{"time_ns": 1, "process": "p", "event": "invoke", "action": "poll", "steps": [["poll", "t", [[1]]]]}'],
            "a polled record",
        ),
        (
            [
                '{"time_ns": 2, "process": "p", "event": "invoke", "action": "poll"}',
                '{"time_ns": 1, "process": "p", "event": "ok"}',
            ],
            "line 2 of the history: its time is before",
        ),
        (
            [
                '{"time_ns": 1, "process": "p", "event": "invoke", "action": "poll"}',
                '{"time_ns": 2, "process": "p", "event": "invoke", "action": "poll"}',
            ],
            "not done with what it began",
        ),
    ],
)
def test_a_line_that_makes_no_sense_is_named(lines, reason):
    with pytest.raises(HistoryError, match=reason):
        read_history(lines)


def test_an_operation_without_an_end_is_of_unknown_outcome():
    (operation,) = read_history(Told().begin("p", "send", ["send", "t", "a"]).lines)
    assert (operation.outcome, operation.completed_ns) == (Outcome.INFO, None)
