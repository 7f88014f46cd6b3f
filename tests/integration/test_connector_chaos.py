"""A group whose members are killed, stopped and cut off: one owner at a time, and no committed offset goes back.

Members are processes that write down each claim, hand-out, commit and release; the checker of histories judges all.
"""

import contextlib
import json
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from millrace.client import Admin, Cluster, Groups, SyncProducer
from millrace.client.consumer.group_offsets import describe_zookeeper_group, open_session
from millrace.client.consumer.offsets import read_coordinator
from millrace.client.consumer.ownership import lease_clock_ns
from millrace.errors import MillraceError, SetupError
from millrace.records.record import NewRecord
from millrace.testing.broker import BrokerProcess
from millrace_benchmarks.zookeeper_server import EmbeddedZooKeeper
from millrace_support.zookeeper_ensemble import EmbeddedEnsemble
from millrace_tools.histories.check import check
from millrace_tools.histories.events import read_history

SESSION_TIMEOUT_MS = 2_000
DEADLINE_S = 120
LOAD_ALLOWANCE_S = DEADLINE_S - 10
PARTITIONS = 6
TOPIC = "t"


class Member:
    """A process of `connector_member.py`."""

    def __init__(self, group, zookeeper):
        self.events_file = group.directory / f"{len(group.members)}.events"
        self.events_file.touch()
        properties = {
            "group.id": "g",
            "zookeeper.connect": zookeeper,
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "zookeeper.connection.timeout.ms": str(DEADLINE_S * 1000),
            "rebalance.backoff.ms": "300",
            "rebalance.max.retries": "200",
            "auto.offset.reset": "smallest",
            "auto.commit.interval.ms": "50",
            **group.properties,
        }
        script = Path(__file__).with_name("connector_member.py")
        command = [sys.executable, str(script), json.dumps(properties), TOPIC, str(self.events_file)]
        self._events, self._position = [], 0
        self.log = (group.directory / f"{len(group.members)}.log").open("wb")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=self.log)

    def events(self):
        with self.events_file.open("rb") as file:
            file.seek(self._position)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self._position += len(whole) + 1
            self._events += map(json.loads, whole.split(b"\n"))
        return self._events

    def send_signal(self, number):
        self.process.send_signal(number)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()


class Group:
    """Members, and a producer that never rests."""

    def __init__(self, directory, zookeeper, broker):
        self.directory, self.zookeeper = directory, zookeeper
        self.members = []
        self.properties = {}
        self.sent = dict.fromkeys(range(PARTITIONS), 0)
        self._ends = threading.Event()
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, PARTITIONS)
        self._producer = threading.Thread(target=self._produce, args=(broker.bootstrap,))
        self._producer.start()

    def join(self, zookeeper=None):
        self.members.append(Member(self, zookeeper or self.zookeeper))
        return self.members[-1]

    def _produce(self, bootstrap):
        with Cluster(bootstrap) as cluster:
            producer = SyncProducer(cluster)
            while not self._ends.wait(0.05):
                for partition in range(PARTITIONS):
                    producer.send(TOPIC, partition, [NewRecord(b"x" * 10)] * 3)
                    self.sent[partition] += 3

    def events(self):
        return [event for member in self.members for event in member.events()]

    def await_(self, condition):
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, [member.log.name for member in self.members]
            time.sleep(0.05)

    def owned(self, member):
        owned = {}
        for event in member.events():
            if event["kind"] == "claim":
                owned[event["partition"]] = event["token"]
            elif event["kind"] == "release" and owned.get(event["partition"]) == event["token"]:
                del owned[event["partition"]]
        return set(owned)

    def await_shares(self, *members):
        """Waits until these members own all partitions together, and each its share at least."""
        all_of_them = {f"{TOPIC}-{number}" for number in range(PARTITIONS)}
        least = PARTITIONS // len(members)

        def are_shared():
            owned = [self.owned(member) for member in members]
            return set().union(*owned) == all_of_them and all(len(one) >= least for one in owned)

        self.await_(are_shared)

    def await_taken_over(self, partitions, since_ns, by):
        """Waits until members of `by` were the last to claim each partition; returns when, `since_ns` at least."""

        def claims():
            """Returns (time in nanoseconds, whether by a member of `by`) of the last claim of each partition."""
            found = [
                (event["ended_ns"], event["partition"], member in by)
                for member in self.members
                for event in member.events()
                if event["kind"] == "claim" and event["partition"] in partitions
            ]
            return {partition: (ended_ns, is_taken) for ended_ns, partition, is_taken in sorted(found)}

        self.await_(lambda: all(is_taken for _, is_taken in claims().values()))
        return max([since_ns, *(ended_ns for ended_ns, _ in claims().values())])

    def await_hand_outs(self):
        """Waits until every partition has handed out something new."""
        since_ns = lease_clock_ns()

        def fresh():
            events = self.events()
            return {one["partition"] for one in events if one["kind"] == "hand-out" and one["began_ns"] > since_ns}

        self.await_(lambda: len(fresh()) == PARTITIONS)

    def end(self):
        """Waits until all that was sent is handed out and committed; then every member leaves."""
        self._ends.set()
        self._producer.join()
        wanted = {(f"{TOPIC}-{number}", offset) for number, sent in self.sent.items() for offset in range(sent)}

        def handed():
            return {(one["partition"], one["offset"]) for one in self.events() if one["kind"] == "hand-out"}

        def committed():
            return {(one["partition"], one["offset"]) for one in self.events() if one["kind"] == "commit"}

        self.await_(lambda: handed() >= wanted)
        self.await_(lambda: committed() >= {(f"{TOPIC}-{number}", sent) for number, sent in self.sent.items()})
        self.close()

    def close(self):
        self._ends.set()
        for member in self.members:
            member.send_signal(signal.SIGCONT)
            member.close()
        self._producer.join()

    def history(self):
        return read_history(history_lines(self.events()))


def history_lines(events):
    """Yields the lines of a history in which each event is an operation of a process of its own."""
    lines = []
    for number, event in enumerate(events):
        process = f"{event['member']}#{number}"
        offsets = [event["offset"]] if event["kind"] in {"hand-out", "commit"} else []
        step = [event["kind"], event["partition"], event["token"], *offsets]
        lines.append((event["began_ns"], 0, process, {"event": "invoke", "action": event["kind"]}))
        lines.append((event["ended_ns"], 1, process, {"event": "ok", "steps": [step]}))
    for time_ns, _, process, fields in sorted(lines, key=lambda line: line[:2]):
        yield json.dumps({"time_ns": time_ns, "process": process, **fields})


class Store:
    """Reads the committed offsets again and again from outside the group, and notes those that have gone back."""

    def __init__(self, read):
        self._read = read
        self.offsets, self.gone_back, self.looks = {}, [], 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._ends.wait(0.02):
            with contextlib.suppress(MillraceError):  # ZooKeeper is being restarted
                self.look()

    def look(self):
        found = self._read()
        self.gone_back += [
            (one, offset, found.get(one)) for one, offset in self.offsets.items() if found.get(one, -1) < offset
        ]
        self.offsets, self.looks = found, self.looks + 1

    def look_last(self):
        """Looks once more, as soon as the session of the test, which a busy machine may have lost, is back."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                return self.look()
            except MillraceError:
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def close(self):
        self._ends.set()
        self._thread.join()


@pytest.fixture
def in_zookeeper(servers):
    session = open_session(servers[0].address)
    store = Store(lambda: dict(describe_zookeeper_group(session, "g").offsets))
    yield store
    store.close()
    session.close()


@pytest.fixture
def in_coordinator(servers):
    with Cluster(servers[1].bootstrap) as cluster:
        store = Store(lambda: read_coordinator(Groups(cluster), "g"))
        yield store
        store.close()


class Proxy:
    """Forwards connections; while `is_open` is not set it lets nothing through, like a network that drops packets."""

    def __init__(self, address):
        host, port = address.split(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.is_open = threading.Event()
        self.is_open.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client):
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        with client, server:
            while True:
                for end in select.select([client, server], [], [])[0]:
                    try:
                        data = end.recv(65_536)
                        if not data:
                            return
                        self.is_open.wait()
                        (server if end is client else client).sendall(data)
                    except OSError:
                        return

    def close(self):
        self.is_open.set()
        self._listener.close()


@pytest.fixture
def servers(request, tmp_path):
    kind = EmbeddedEnsemble if request.param == "ensemble" else EmbeddedZooKeeper
    with (
        kind(tmp_path / "zookeeper") as zookeeper,
        BrokerProcess(tmp_path / "b", zookeeper=zookeeper.address) as broker,
    ):
        yield zookeeper, broker


@pytest.fixture
def group(servers, tmp_path):
    zookeeper, broker = servers
    group = Group(tmp_path, zookeeper.address, broker)
    yield group
    group.close()


def stop_beyond_the_session(group, stopped, others):
    partitions, since_ns = group.owned(stopped), lease_clock_ns()
    stopped.send_signal(signal.SIGSTOP)
    group.await_taken_over(partitions, since_ns, others)
    group.await_hand_outs()
    stopped.send_signal(signal.SIGCONT)
    group.await_shares(stopped, *others)


def kill_and_replace(group, killed, others):
    """Kills a member; returns how many seconds later the others own its partitions."""
    partitions, since_ns = group.owned(killed), lease_clock_ns()
    killed.send_signal(signal.SIGKILL)
    taken_ns = group.await_taken_over(partitions, since_ns, others)
    return (taken_ns - since_ns) / 1e9


def await_leader(group, ensemble):
    """Returns the server that leads, once one says so; none may answer on a busy machine or in an election."""
    found = []

    def is_found():
        with contextlib.suppress(SetupError):
            found.append(ensemble.leader())
        return found

    group.await_(is_found)
    return found[0]


def judge(group, store, record_property):
    """Checks that ownerships do not overlap, by the members' events, and that no committed offset went back."""
    store.close()
    store.look_last()
    assert store.gone_back == []
    assert {one.number: offset for one, offset in store.offsets.items()} == group.sent
    record_property("looks at the store", store.looks)
    history = group.history()
    steps = Counter(step.action for one in history for step in one.ownings())
    for action, count in steps.items():
        record_property(f"{action}s", count)
    assert check(history) == []
    assert set(steps) == {"claim", "release", "hand-out", "commit"}


@pytest.mark.soak(rounds=1, minutes=10)
@pytest.mark.parametrize("servers", ["single"], indirect=True)
def test_members_die_stop_and_are_cut_off(group, servers, in_zookeeper, rounds, record_property):
    zookeeper, _ = servers
    proxy = Proxy(zookeeper.address)
    took_s = []  # one for each round, which has one of each fault
    stays, cut = group.join(), group.join(proxy.address)
    for _ in rounds:
        goes = group.join()
        group.await_shares(stays, cut, goes)
        stop_beyond_the_session(group, stays, [cut, goes])
        took_s.append(kill_and_replace(group, goes, [stays, cut]))
        proxy.is_open.clear()
        group.await_taken_over(group.owned(cut), lease_clock_ns(), [stays])
        proxy.is_open.set()
        group.await_shares(stays, cut)
        zookeeper.kill()
        zookeeper.start()
        group.await_hand_outs()
    record_property("killed_paused_cut_off_restarted", len(took_s))
    record_property("takeover_s", f"{min(took_s):.1f} to {max(took_s):.1f}")
    assert max(took_s) < SESSION_TIMEOUT_MS / 1000 + 1 + LOAD_ALLOWANCE_S
    group.end()
    proxy.close()
    judge(group, in_zookeeper, record_property)


@pytest.mark.soak(rounds=1, minutes=10)
@pytest.mark.parametrize("servers", ["ensemble"], indirect=True)
def test_an_ensemble_loses_its_leader(group, servers, in_coordinator, rounds, record_property):
    """Offsets are in the coordinator alone, whose fencing of producers refuses the commits of former owners."""
    ensemble, _ = servers
    group.properties = {"offsets.storage": "kafka", "dual.commit.enabled": "false", "auto.commit.interval.ms": "300"}
    first, second = group.join(), group.join()
    group.await_shares(first, second)
    leaders = 0
    for _ in rounds:
        leader = await_leader(group, ensemble)
        leader.kill()
        group.await_hand_outs()
        stop_beyond_the_session(group, first, [second])
        leader.start()
        leaders += 1
        group.await_hand_outs()
    group.end()
    record_property("leaders_killed_and_members_paused", leaders)
    judge(group, in_coordinator, record_property)
