"""Transcripts of one member's rebalance: events on lines that begin with `>`, what it is to do indented below.

    > plan t-0:0 t-1:1      the group was read: partition and stream that are to be ours
    > refused t-1 t-0       t-1 has another owner, t-0 was claimed before that showed
    > registered, changed, released, claimed, elapsed, lost, close

The last line of each event is the state: phase, attempt, what is held, and `stale` where a change is waiting.
"""

from pathlib import Path

import pytest

from millrace.client.consumer import rebalance
from millrace.client.consumer.assignment import Partition, Thread

TRANSCRIPTS = sorted((Path(__file__).parents[4] / "transcripts" / "rebalance").glob("*.txt"))
PLAIN = {
    "registered": rebalance.Registered,
    "changed": rebalance.Changed,
    "released": rebalance.Released,
    "claimed": rebalance.Claimed,
    "elapsed": rebalance.Elapsed,
    "lost": rebalance.SessionLost,
    "close": rebalance.Close,
}


def partition(word):
    topic, _, number = word.rpartition("-")
    return Partition(topic, int(number))


def event(line):
    name, *words = line.split()
    if name == "plan":
        pairs = [word.split(":") for word in words]
        return rebalance.Planned({partition(one): Thread("m", int(stream)) for one, stream in pairs})
    if name == "refused":
        refused, *taken = map(partition, words)
        return rebalance.Refused(refused, tuple(taken))
    return PLAIN[name]()


def shown(action):
    fields = [getattr(action, name) for name in action.__dataclass_fields__]
    words = [str(one) if isinstance(one, Partition) else " ".join(map(str, sorted(one))) for one in fields]
    return " ".join([type(action).__name__.lower(), *words]).rstrip()


def state(member):
    held = " ".join(f"{one}:{thread.number}" for one, thread in sorted(member.held.items())) or "nothing"
    return f"[{member.phase.value} attempt {member.attempt} holds {held}{' stale' if member.stale else ''}]"


def played(text):
    member, lines = rebalance.Member(max_retries=2), []
    for line in text.splitlines():
        if line.startswith(("#", ">")) or not line:
            lines.append(line)
        if line.startswith("> "):
            member, actions = rebalance.step(member, event(line[2:].partition("#")[0]))
            lines += [f"    {shown(action)}" for action in actions] + [f"    {state(member)}"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_rebalance_goes_as_written(path):
    text = path.read_text(encoding="utf-8")
    assert played(text) == text


def test_there_are_transcripts():
    assert len(TRANSCRIPTS) >= 6
