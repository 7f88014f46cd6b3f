"""A broker with a fault that is planted in it: the checker of histories names it, by what its clients have seen.

The clients are those of `test_histories_under_faults.py`, the faults are `histories/faulty_broker.py`'s.
"""

import faulty_broker
import pytest
from faulty_broker import FAULTS
from playing import PATIENCE_S, PROPERTIES, history_of, playing

from millrace.testing.broker import BrokerProcess
from millrace_ops.histories.check import check
from millrace_ops.histories.events import Action
from millrace_ops.histories.finding import Anomaly

READERS = ("confluent-assigned", "aiokafka-assigned")
SENDERS = ("confluent-sender", "aiokafka-sender")
TRANSACTORS = ("confluent-transactor", "aiokafka-transactor")
SENT, TRANSACTED = {Action.SEND: 20}, {Action.TRANSACTION: 20}
FOUND = {
    "cuts_the_log": (Anomaly.INCONSISTENT_OFFSET, SENDERS, SENT),
    "loses_answers,checks_no_sequence": (Anomaly.DUPLICATE, SENDERS, SENT),
    "tells_of_no_abort": (Anomaly.ABORTED_READ, TRANSACTORS, TRANSACTED),
    "knows_no_stable_offset": (Anomaly.INTERMEDIATE_READ, TRANSACTORS, TRANSACTED),
    "skips_batches": (Anomaly.POLL_SKIP, SENDERS, SENT),
    "commits_by_halves": (Anomaly.LOST_WRITE, TRANSACTORS, TRANSACTED),
    "fences_no_one": (Anomaly.LOST_WRITE, (*SENDERS, "confluent-usurped"), SENT | {Action.TRANSACTION: 2}),
    "moves_commits_back": (
        Anomaly.LOST_COMMIT,
        ("confluent-sender", "first-member", "watcher"),
        {Action.COMMIT: 3, Action.COMMITTED: 40},
    ),
}


def findings_beside(tmp_path, fault, roles, counts):
    """What is wrong with a history; what cuts the log does so after a kill."""
    with (
        BrokerProcess(tmp_path / "data", properties=PROPERTIES, program=(faulty_broker.__file__, fault)) as broker,
        (tmp_path / "history").open("w+") as file,
    ):
        with playing(broker, file, (*roles, *READERS)) as recorder:
            assert recorder.await_done(counts, PATIENCE_S), broker.read_log()[-4000:]
            if fault == "cuts_the_log":
                broker.kill()
                broker.start()
                assert recorder.await_done(counts, PATIENCE_S), broker.read_log()[-4000:]
        return check(history_of(file), allowed={Anomaly.WRITE_CYCLE})


@pytest.mark.parametrize("fault", FOUND)
def test_a_planted_fault_is_found(tmp_path, fault):
    anomaly, roles, counts = FOUND[fault]
    assert anomaly in {finding.anomaly for finding in findings_beside(tmp_path, fault, roles, counts)}


def test_lost_answers_alone_are_no_fault(tmp_path):
    assert findings_beside(tmp_path, "loses_answers", (*SENDERS, *TRANSACTORS), SENT | TRANSACTED) == []


def test_every_fault_is_planted():
    assert {name for names in FOUND for name in names.split(",")} == FAULTS.keys()
