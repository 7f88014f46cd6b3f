"""Whoever the controller may elect has everything below the high watermark, whatever is lost or late on the way.

A leader's table runs against followers that have more than the leader has heard of, and a controller whose answers get
lost, come late, or are errors. The rule that replication stands on: each broker that the controller counts as in sync,
though the leader may not know it yet, holds every record below the leader's high watermark.
"""

from random import Random

import pytest

from millrace.errors import ErrorCode
from millrace_broker.replication.in_sync_replicas import Decision, Election, InSyncReplicas, Proposal

LEADER, FOLLOWERS = 1, (2, 3, 4)
REPLICAS = (LEADER, *FOLLOWERS)
LAG_TIME_MAX_MS = 1000
LEADER_EPOCH = 7
STEPS = 250


class Controller:
    """Holds the partition's state in ZooKeeper: an ISR, changed only under the partition epoch that it has."""

    def __init__(self, isr: frozenset[int]) -> None:
        self.isr = isr
        self.partition_epoch = 0
        self.alive = frozenset(REPLICAS)

    def alter(self, proposal: Proposal) -> ErrorCode:
        if proposal.isr == self.isr:
            return ErrorCode.NONE
        if proposal.partition_epoch != self.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if not proposal.isr <= self.alive:
            return ErrorCode.INELIGIBLE_REPLICA
        self.isr = proposal.isr
        self.partition_epoch += 1
        return ErrorCode.NONE


class Partition:
    """A leader's table, the logs' true ends, and the request to the controller that is under way."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.now_ms = 0
        self.end = chance.randint(0, 10)
        isr = frozenset([LEADER, *(each for each in FOLLOWERS if chance.random() < 0.6)])
        self.min_isr = chance.randint(1, 3)
        # A new leader's high watermark may lie behind that of the leader before, up to which all is acknowledged.
        self.acknowledged = chance.randint(0, self.end)
        watermark = chance.randint(0, self.acknowledged)
        self.ends = {each: chance.randint(self.acknowledged if each in isr else 0, self.end) for each in FOLLOWERS}
        self.controller = Controller(isr)
        election = Election(LEADER, REPLICAS, isr, LEADER_EPOCH, 0, self.end, watermark)
        self.table = InSyncReplicas(election, self.min_isr, LAG_TIME_MAX_MS, REPLICAS, self.now_ms)
        self.request: Proposal | None = None
        self.before = self.table.high_watermark
        self.expansions = self.shrinks = 0

    def play(self) -> None:
        step = self.chance.choices(
            [self.append, self.fetch, self.wait, self.check, self.answer, self.change_alive], [25, 40, 15, 8, 10, 2]
        )[0]
        self.perform(step())
        self.hold_the_rules()

    def append(self) -> Decision:
        self.end += self.chance.randint(1, 4)
        return self.table.appended(self.end, self.now_ms)

    def fetch(self) -> Decision | None:
        """Lets a follower ask at its log's end; an answer that arrives makes the log longer than the leader knows."""
        follower = self.chance.choice(FOLLOWERS)
        decision = self.table.fetched(follower, self.ends[follower], self.now_ms)
        if self.chance.random() < 0.8:
            self.ends[follower] = min(self.end, self.ends[follower] + self.chance.randint(0, 6))
        return decision

    def wait(self) -> None:
        self.now_ms += self.chance.choice([1, 50, 400, 1100])

    def check(self) -> Decision:
        return self.table.check(self.now_ms)

    def change_alive(self) -> Decision | None:
        """Chooses which followers are alive, and tells the controller; tells the leader half of the times."""
        self.controller.alive = frozenset([LEADER, *(each for each in FOLLOWERS if self.chance.random() < 0.8)])
        return self.table.eligible(self.controller.alive, self.now_ms) if self.chance.random() < 0.5 else None

    def answer(self) -> Decision | None:
        if self.request is None:
            return None
        proposal, self.request = self.request, None
        fate = self.chance.choices(["answered", "answer lost", "request lost", "late"], [70, 10, 10, 10])[0]
        if fate == "late":
            self.request = proposal
            return None
        code = ErrorCode.REQUEST_TIMED_OUT if fate == "request lost" else self.controller.alter(proposal)
        if fate == "answer lost":
            code = ErrorCode.NETWORK_EXCEPTION
        if code:
            return self.table.refused(proposal, code, self.now_ms)
        return self.table.accepted(self.controller.isr, LEADER_EPOCH, self.controller.partition_epoch, self.now_ms)

    def perform(self, decision: Decision | None) -> None:
        if decision is not None and decision.proposal is not None:
            assert self.request is None, "one change at a time"
            self.request = decision.proposal
            self.expansions += decision.proposal.isr > self.table.committed
            self.shrinks += decision.proposal.isr < self.table.committed

    def hold_the_rules(self) -> None:
        table = self.table
        assert self.before <= table.high_watermark <= self.end
        self.before = table.high_watermark
        assert LEADER in table.committed
        assert self.controller.isr <= table.maximal
        for each in self.controller.isr - {LEADER}:
            committed = max(table.high_watermark, self.acknowledged)
            assert self.ends[each] >= committed, "an electable replica lacks what was committed"

    def settle(self) -> None:
        """Lets everyone live and fetch until all are in sync: then all is committed."""
        self.controller.alive = frozenset(REPLICAS)
        self.perform(self.table.eligible(REPLICAS, self.now_ms))
        for _ in range(20):
            for each in FOLLOWERS:
                self.perform(self.table.fetched(each, self.ends[each], self.now_ms))
                self.ends[each] = self.end
                self.hold_the_rules()
            if self.request is not None:
                proposal, self.request = self.request, None
                code = self.controller.alter(proposal)
                if code:
                    self.perform(self.table.refused(proposal, code, self.now_ms))
                else:
                    isr, epoch = self.controller.isr, self.controller.partition_epoch
                    self.perform(self.table.accepted(isr, LEADER_EPOCH, epoch, self.now_ms))


@pytest.mark.soak(rounds=150, minutes=1)
def test_each_electable_replica_has_all_that_is_committed(rounds, record_property) -> None:
    expansions = shrinks = 0
    for seed in rounds:
        partition = Partition(Random(seed))
        for _ in range(STEPS):
            partition.play()
        partition.settle()
        assert partition.table.committed == frozenset(REPLICAS)
        assert partition.table.high_watermark == partition.end
        expansions, shrinks = expansions + partition.expansions, shrinks + partition.shrinks
    record_property("seeds", seed + 1)
    assert expansions > seed
    assert shrinks > seed
