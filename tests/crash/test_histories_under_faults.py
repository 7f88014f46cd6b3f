"""Histories of real clients, while the broker is killed, paused, restarted and out of disk: the checker finds nothing.

Every message is flushed, every send waits for its acknowledgement. librdkafka and aiokafka send and transact; they
read by assignment and, in a group whose members come and go, by subscription; one transactional id changes hands
inside its transactions, and someone asks all the time how far the group has come. One round is one fault.
"""

import itertools
import random
import resource
import signal
import threading
from collections import Counter

import pytest
from playing import PATIENCE_S, PROPERTIES, ROLES, history_of, playing

from millrace.testing.broker import BrokerProcess
from millrace_tools.histories.check import check
from millrace_tools.histories.events import Action, Outcome
from millrace_tools.histories.finding import Anomaly

BETWEEN = {Action.SEND: 8, Action.TRANSACTION: 4, Action.POLL: 20, Action.COMMITTED: 4}


def killed(broker):
    broker.kill()
    broker.start()


def paused(broker):
    broker.send_signal(signal.SIGSTOP)
    a_moment()
    broker.send_signal(signal.SIGCONT)


def out_of_disk(broker):
    """No file may grow above the size that one of the logs has now."""
    sizes = [file.stat().st_size for file in broker.data_dir.glob("*/*.log")]
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (random.choice(sizes), resource.RLIM_INFINITY))
    a_moment()
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def a_moment():
    threading.Event().wait(random.uniform(0.3, 1.5))


FAULTS = (killed, paused, out_of_disk, BrokerProcess.restart)


@pytest.mark.timeout(1200)
# The limit of a file is one for the log, too: what it says of it may be cut, or fail with a traceback.
@pytest.mark.broker_errors(r"storage\.failures", r"\[Errno 27\] File too large", r"\AERROR [\w.]*\Z")
@pytest.mark.soak(rounds=4, minutes=10)
def test_histories_show_no_anomaly(tmp_path, rounds, record_property):
    faults = Counter()
    with (
        BrokerProcess(tmp_path / "data", properties=PROPERTIES) as broker,
        (tmp_path / "history").open("w+") as file,
    ):
        with playing(broker, file, ROLES) as recorder:
            for _, fault in zip(rounds, itertools.cycle(FAULTS), strict=False):
                assert recorder.await_done(BETWEEN, PATIENCE_S), broker.read_log()[-4000:]
                fault(broker)
                faults[fault.__name__] += 1
            assert recorder.await_done(BETWEEN, PATIENCE_S), broker.read_log()[-4000:]
        operations = history_of(file)
    findings = check(operations, allowed={Anomaly.WRITE_CYCLE})
    assert not findings, "\n".join(map(str, findings[:20]))
    outcomes = Counter((operation.action, operation.outcome) for operation in operations)
    assert outcomes["transaction", Outcome.OK]
    assert outcomes["send", Outcome.OK]
    for (action, outcome), number in sorted(outcomes.items()):
        record_property(f"{action} {outcome}", number)
    for name, number in faults.items():
        record_property(name, number)
