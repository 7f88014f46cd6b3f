"""Transcripts of one member's rebalance: events on lines that begin with `>`, what it is to do indented below.

    > plan t-0:0 t-1:1      the group was read: partition and stream that are to be ours
    > refused t-1 t-0       t-1 has another owner, t-0 was claimed before that showed
    > registered, changed, released, claimed, elapsed, lost, close

The last line of each event is the state: phase, attempt, what is held, and `stale` where a change is waiting.
"""

from millrace.client.consumer import rebalance
from millrace.client.consumer.assignment import Partition, Thread
from millrace_support import transcripts
from millrace_support.transcripts import plays

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


def shown(action):
    fields = [getattr(action, name) for name in action.__dataclass_fields__]
    words = [str(one) if isinstance(one, Partition) else " ".join(map(str, sorted(one))) for one in fields]
    return " ".join([type(action).__name__.lower(), *words]).rstrip()


class Stage(transcripts.Stage):
    """Plays one transcript."""

    def __init__(self, settings):
        super().__init__()
        self.member = rebalance.Member(max_retries=2)

    def happen(self, name, plain, options):
        event = PLAIN[name]() if name in PLAIN else getattr(self, name)(*plain)
        self.member, actions = rebalance.step(self.member, event)
        for action in actions:
            self.say(shown(action))

    def plan(self, *words):
        pairs = [word.split(":") for word in words]
        return rebalance.Planned({partition(one): Thread("m", int(stream)) for one, stream in pairs})

    def refused(self, *words):
        refused, *taken = map(partition, words)
        return rebalance.Refused(refused, tuple(taken))

    def state(self):
        member = self.member
        held = " ".join(f"{one}:{thread.number}" for one, thread in sorted(member.held.items())) or "nothing"
        return f"[{member.phase.value} attempt {member.attempt} holds {held}{' stale' if member.stale else ''}]"


test_a_rebalance_goes_as_written = plays("rebalance", Stage)
