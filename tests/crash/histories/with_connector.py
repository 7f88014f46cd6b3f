"""Members of a group that ZooKeeper coordinates, in processes of their own, and the history of what they were told.

Each message that is handed out is recorded as a poll, too, of a process of its own for each term of an owner: the next
owner goes on from the committed offset, and a message that was handed out to nobody is lost.
"""

import itertools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

from millrace.client.consumer.ownership import lease_clock_ns

SCRIPT = Path(__file__).with_name("connector_process.py")
SESSION_TIMEOUT_MS = 2_000
PATIENCE_S = 120


class Member(threading.Thread):
    """A member in its own process, and the events that it has written so far."""

    def __init__(self, group, fault):
        super().__init__(daemon=True)
        self.group, self.events, self.is_killed = group, [], False
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), json.dumps(group.properties), group.topic, *([fault] if fault else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(self):
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                with self.group.changed:
                    self.events.append(json.loads(line))
                    self.group.changed.notify_all()

    def owned(self):
        """Returns the partitions that it has claimed and not released."""
        tokens = {}
        for event in self.events:
            if event["kind"] == "claim":
                tokens[event["partition"]] = event["token"]
            elif event["kind"] == "release" and tokens.get(event["partition"]) == event["token"]:
                del tokens[event["partition"]]
        return set(tokens)

    def kill(self):
        self.process.kill()
        self.is_killed = True

    def leave(self):
        """Has the process shut down cleanly; kills it, and raises TimeoutExpired, if that takes too long."""
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.join()
            self.process.stdout.close()


class Group:
    """Members that share a topic's partitions."""

    def __init__(self, zookeeper, topic, partitions):
        self.topic = topic
        self.partitions = {f"{topic}-{index}" for index in range(partitions)}
        self.members = []
        self.changed = threading.Condition()
        self.properties = {
            "group.id": "g",
            "zookeeper.connect": zookeeper,
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "zookeeper.connection.timeout.ms": str(1000 * PATIENCE_S),
            "rebalance.backoff.ms": "300",
            "rebalance.max.retries": "400",
            "auto.offset.reset": "smallest",
            "auto.commit.interval.ms": "50",
        }

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.members:
            member.leave()

    def join(self, fault=None):
        self.members.append(Member(self, fault))
        self.members[-1].start()
        return self.members[-1]

    def living(self):
        return [member for member in self.members if not member.is_killed]

    def await_(self, condition):
        """Waits until a condition on the events of the members holds."""
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE_S), [member.owned() for member in self.members]

    def await_shares(self, *members):
        """Waits until each of these members owns a partition, and together they own all."""
        self.await_(
            lambda: (
                all(one.owned() for one in members)
                and set().union(*(one.owned() for one in members)) == self.partitions
            )
        )

    def await_hand_outs(self, *members):
        """Waits until each of these members has been handed another value."""
        before = [len(one.events) for one in members]
        self.await_(
            lambda: all(
                any(event["kind"] == "value" for event in one.events[count:])
                for one, count in zip(members, before, strict=True)
            )
        )

    def handed(self):
        return {event["value"] for member in self.members for event in member.events if event["kind"] == "value"}

    def history_lines(self):
        """Yields (time in nanoseconds, event) for each line of the history, by the clock of a recorder."""
        ahead_ns = lease_clock_ns() - time.monotonic_ns()
        names = itertools.count()
        for member in self.members:
            values = {(one["partition"], one["offset"]): one["value"] for one in member.events if "value" in one}
            for event in member.events:
                if event["kind"] != "value":
                    yield from lines_of(event, values, f"{event['member']}#{next(names)}", ahead_ns)


def lines_of(event, values, name, ahead_ns):
    kind, partition, token, offset = (event[key] for key in ("kind", "partition", "token", "offset"))
    with_offset = kind in {"hand-out", "commit"}
    steps = [[kind, partition, token, *([offset] if with_offset else [])]]
    if kind == "hand-out":
        name = f"{event['member']}/{partition}/{token}"
        if (partition, offset) in values:
            steps.append(["poll", partition, [[offset, values[partition, offset]]]])
    for time_ns, fields in (
        (event["began_ns"], {"event": "invoke", "action": kind}),
        (event["ended_ns"], {"event": "ok", "steps": steps}),
    ):
        yield time_ns - ahead_ns, {"process": name, **fields}


def merged(recorded, lines):
    """Yields one history, sorted by time, of a recorder's lines and of a group's events."""
    events = [(event.pop("time_ns"), event) for event in map(json.loads, recorded)]
    for time_ns, event in sorted([*events, *lines], key=lambda one: one[0]):
        yield json.dumps({"time_ns": time_ns, **event}) + "\n"
