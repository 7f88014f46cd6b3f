"""A group that ZooKeeper coordinates, while members and broker are killed and stopped: its history shows no anomaly.

Members write down what they own and what they are handed, senders what was acknowledged; one history has it all.
"""

import itertools
import signal
import subprocess
import sys
from collections import Counter

import pytest
from playing import PARTITIONS, PATIENCE_S, PROPERTIES, TOPIC, playing
from with_connector import Group, merged

from millrace.testing.broker import BrokerProcess
from millrace_tools.histories.events import Action, Outcome, read_history

SENDERS = ("confluent-sender", "aiokafka-sender")


@pytest.fixture
def clustered(zookeeper, tmp_path):
    address = f"{zookeeper.address}/{tmp_path.name}"
    with BrokerProcess(tmp_path / "data", zookeeper=address, properties=PROPERTIES) as broker:
        yield broker, address


def member_killed(_, group):
    stays, goes = group.living()
    goes.kill()
    group.await_shares(stays)
    group.await_shares(stays, group.join())


def member_stopped(_, group):
    stopped, stays = group.living()
    stopped.process.send_signal(signal.SIGSTOP)
    group.await_(lambda: stays.owned() == group.partitions)
    group.await_hand_outs(stays)
    seen = len(stopped.events)
    stopped.process.send_signal(signal.SIGCONT)
    group.await_(lambda: any(event["kind"] == "claim" for event in stopped.events[seen:]))
    group.await_shares(stopped, stays)


def broker_killed(broker, group):
    broker.kill()
    broker.start()
    group.await_hand_outs(*group.living())


FAULTS = (member_stopped, broker_killed, member_killed)


def judged(tmp_path):
    """Returns what the checker prints and its exit status; sends to several partitions at once have no common order."""
    arguments = ["history", "check", str(tmp_path / "history"), "--allow", "write-cycle"]
    command = [sys.executable, "-m", "millrace_ops", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return result.stdout, result.returncode


def acknowledged(file):
    file.seek(0)
    sent = [one for one in read_history(file) if one.outcome is Outcome.OK]
    return {send.value for one in sent for send in one.sends()}


@pytest.mark.timeout(900)
@pytest.mark.soak(rounds=3, minutes=5)
def test_the_history_of_a_group_shows_no_anomaly(clustered, tmp_path, rounds, record_property):
    broker, address = clustered
    faults = Counter()
    with (tmp_path / "sent").open("w+") as file, Group(address, TOPIC, PARTITIONS) as group:
        with playing(broker, file, SENDERS, is_read_at_end=False):
            group.await_shares(group.join(), group.join())
            group.await_hand_outs(*group.members)
            for _, fault in zip(rounds, itertools.cycle(FAULTS), strict=False):
                fault(broker, group)
                faults[fault.__name__] += 1
        sent = acknowledged(file)
        group.await_(lambda: sent <= group.handed())
        file.seek(0)
        (tmp_path / "history").write_text("".join(merged(file, group.history_lines())))
    said, status = judged(tmp_path)
    assert (status, said.partition(", ")[2]) == (0, "no anomaly\n"), said
    with (tmp_path / "history").open() as history:
        actions = Counter(operation.action for operation in read_history(history))
    assert {Action.SEND, Action.CLAIM, Action.RELEASE, Action.HAND_OUT, Action.COMMIT} == actions.keys()
    for name, number in (*sorted(actions.items()), *faults.items()):
        record_property(str(name), number)


def await_hand_out_of_what_is_gone(group, former, owner):
    taken, seen = owner.owned(), len(former.events)
    group.await_(lambda: any(one["kind"] == "hand-out" and one["partition"] in taken for one in former.events[seen:]))


def test_members_with_planted_faults_are_found(clustered, tmp_path):
    """One member skips a message after the committed offset, another goes on with partitions that it has lost."""
    broker, address = clustered
    with (tmp_path / "sent").open("w+") as file, Group(address, TOPIC, PARTITIONS) as group:
        with playing(broker, file, SENDERS, is_read_at_end=False):
            first = group.join()
            group.await_shares(first)
            group.await_hand_outs(first)
            second = group.join("begins_behind")
            group.await_shares(first, second)
            group.await_hand_outs(second)
            first.leave()
            group.await_shares(second)
            third = group.join("gives_nothing_up")
            group.await_shares(second, third)
            second.leave()
            group.await_shares(third)
            group.await_hand_outs(third)
            fourth = group.join()
            group.await_shares(third, fourth)
            await_hand_out_of_what_is_gone(group, third, fourth)
        file.seek(0)
        (tmp_path / "history").write_text("".join(merged(file, group.history_lines())))
    said, status = judged(tmp_path)
    assert status == 1
    assert "lost-write" in said
    assert "ownership-overlap" in said
