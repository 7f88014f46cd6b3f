"""Transcripts of a led partition: events on lines that begin with `>`, what follows from them indented below.

    set leader=1 replicas=1,2,3 isr=1,2 end=10 watermark=8 min=2      (these are the defaults)

    > append 5                        the leader's log grows by so many records
    > fetch 2 15                      broker 2 fetches at offset 15
    > wait 10000                      milliseconds pass
    > check                           the leader looks for followers that have fallen behind
    > accept                          the controller accepts what it was asked for
    > refuse FENCED_LEADER_EPOCH      it refuses that; `refuse CODE old` answers the proposal before
    > commit 1,2 7                    an ISR comes from the controller, in a partition epoch; `leader=4` in that epoch
    > eligible 1,2                    these brokers are alive
    > min 1                           min.insync.replicas is another
    > outcome 15                      what becomes of a write with acks=all up to that offset

The last line of each event is the table's state. Millisecond 0 is 100 s after the clock's zero.
"""

from millrace.errors import ErrorCode, NotLeaderError
from millrace_broker.replication.in_sync_replicas import Decision, Election, InSyncReplicas
from millrace_support import transcripts
from millrace_support.transcripts import plays

DEFAULTS = {"leader": "1", "replicas": "1,2,3", "isr": "1,2", "end": "10", "watermark": "8", "min": "2"}
LAG_TIME_MAX_MS = 30_000
LEADER_EPOCH, PARTITION_EPOCH = 5, 3


def ids(text):
    return frozenset(map(int, text.split(",")))


def shown(brokers):
    return ",".join(map(str, sorted(brokers)))


class Stage(transcripts.Stage):
    """Plays one transcript."""

    def __init__(self, settings):
        super().__init__()
        settings = DEFAULTS | settings
        self.now_ms = 100_000
        self.end = int(settings["end"])
        replicas = tuple(sorted(ids(settings["replicas"])))
        election = Election(
            leader=int(settings["leader"]),
            replicas=replicas,
            isr=ids(settings["isr"]),
            leader_epoch=LEADER_EPOCH,
            partition_epoch=PARTITION_EPOCH,
            log_end_offset=self.end,
            high_watermark=int(settings["watermark"]),
        )
        self.table = InSyncReplicas(election, int(settings["min"]), LAG_TIME_MAX_MS, replicas, self.now_ms)
        self.asked = []

    def happen(self, name, plain, options):
        try:
            self.tell(super().happen(name, plain, options))
        except NotLeaderError as error:
            self.say(str(error))

    def state(self):
        table = self.table
        pending = "" if table.pending is None else f", pending {shown(table.pending)}"
        enough = "" if table.has_enough else ", not enough"
        return f"[isr {shown(table.committed)}{pending}; high watermark {table.high_watermark} of {self.end}{enough}]"

    def tell(self, decision):
        if decision is None:
            return
        assert isinstance(decision, Decision)
        if decision.moves_high_watermark:
            self.say(f"high watermark {self.table.high_watermark}")
        if decision.proposal is not None:
            self.asked.append(decision.proposal)
            self.say(
                f"ask for {shown(decision.proposal.isr)} after partition epoch {decision.proposal.partition_epoch}"
            )

    def on_append(self, count):
        self.end += int(count)
        return self.table.appended(self.end, self.now_ms)

    def on_fetch(self, broker, offset):
        return self.table.fetched(int(broker), int(offset), self.now_ms)

    def on_wait(self, milliseconds):
        self.now_ms += int(milliseconds)

    def on_check(self):
        return self.table.check(self.now_ms)

    def on_accept(self):
        proposal = self.asked[-1]
        return self.table.accepted(proposal.isr, LEADER_EPOCH, proposal.partition_epoch + 1, self.now_ms)

    def on_refuse(self, code, which="last"):
        proposal = self.asked[-1] if which == "last" else self.asked[-2]
        return self.table.refused(proposal, ErrorCode[code], self.now_ms)

    def on_commit(self, isr, epoch, leader=LEADER_EPOCH):
        return self.table.accepted(ids(isr), int(leader), int(epoch), self.now_ms)

    def on_eligible(self, brokers):
        return self.table.eligible(ids(brokers), self.now_ms)

    def on_min(self, count):
        return self.table.reconfigured(int(count), self.now_ms)

    def on_outcome(self, offset):
        outcome = self.table.outcome_of(int(offset))
        self.say("waits" if outcome is None else outcome.name)


test_a_transcript_is_what_happens = plays("replication", Stage)
