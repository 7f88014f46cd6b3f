"""The in-sync replicas (ISR) of a partition in one epoch of its leader, and the high watermark that they allow.

    committed   what the controller has confirmed
    pending     what it was asked for (AlterPartition, KIP-497) and has not answered; one change at a time
    maximal     committed and pending together: all that a new leader may be elected from meanwhile

**High watermark**: the least log end offset of the leader, of the maximal ISR, and of followers that are caught up and
eligible, since they are about to join. Of the leader's own log only what the disk has counts, where a sync is demanded.
So a shrink counts once it is confirmed, and an expansion at once. The high watermark never goes back, and stands still
while fewer replicas are committed than the effective min ISR.

**Caught up**: the follower fetches at the leader's log end, or was there within `replica.lag.time.max.ms`. A fetch at
the offset where the leader's log ended at the fetch before counts for the time of that earlier fetch. A follower that
is not caught up leaves the ISR.

**May join**: an eligible follower (its broker is alive and not shutting down) whose log end has reached the high
watermark and the offset at which the leader's epoch began (KAFKA-7128).

| answer of the controller | what follows |
|---|---|
| an ISR | it is committed, and the high watermark may move (KAFKA-13091) |
| OPERATION_NOT_ATTEMPTED, INELIGIBLE_REPLICA | what was committed before holds |
| codes in `PENDING_UNTIL_LEADER_AND_ISR` | the change stays pending; LeaderAndIsr brings a new table |
| any other error, or none in time | the same change is asked for again |

Events go in, and a decision comes out; times are monotonic milliseconds. The caller sends one proposal at a time, and
sends it again only when the one before can't be carried out any more or the controller knows both by their partition
epoch. A fetch counts only once its leader epoch and topic id were checked, and where its answer has neither
OFFSET_OUT_OF_RANGE nor a diverging epoch (KAFKA-14078). It counts for the registration that it names: a proposal has
the broker epochs of its followers, so that none joins for what it had before it started with an empty disk (KIP-903).

A consumer reads from a follower in sync (KIP-392) as `replica.selector.class` of its leader's broker says:

| `replica.selector.class` | a consumer reads from |
|---|---|
| none, or `LeaderSelector` | the leader |
| `RackAwareReplicaSelector` | the best follower in its rack; the leader if that is there too, or no follower is |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from millrace.config import MAX_LONG
from millrace.errors import ErrorCode, NotLeaderError
from millrace.wire.controller_apis import NO_BROKER_EPOCH

UNKNOWN_OFFSET = -1
NEVER_MS = -MAX_LONG

BACK_TO_COMMITTED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
PENDING_UNTIL_LEADER_AND_ISR = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """Returns `min.insync.replicas`, but at most the number of the partition's replicas (Kafka since 3.7, KIP-966)."""
    return min(min_insync_replicas, replica_count)


@dataclass(slots=True)
class Follower:
    """The state of a follower, by its fetches; `broker_epoch` is that in the newest fetch."""

    broker_epoch: int = NO_BROKER_EPOCH
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_caught_up_ms: int = NEVER_MS
    last_fetch_ms: int = NEVER_MS
    leaders_end_at_last_fetch: int = UNKNOWN_OFFSET

    def fetched(self, offset: int, leaders_end: int, now_ms: int) -> None:
        """Updates the follower's log end by a fetch from `offset`, and when it last had all up to `leaders_end`."""
        if offset >= leaders_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.leaders_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.leaders_end_at_last_fetch = max(self.leaders_end_at_last_fetch, leaders_end)
        self.last_fetch_ms = now_ms

    def is_caught_up(self, leaders_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Returns whether the follower has the leader's whole log, or had it at most `lag_time_max_ms` ago."""
        return self.log_end_offset == leaders_end or now_ms - self.last_caught_up_ms <= lag_time_max_ms


class ReadReplica(NamedTuple):
    """A follower from which consumers may read; the greatest, by log end, then by time caught up, is the best."""

    log_end_offset: int
    last_caught_up_ms: int
    broker_id: int


class Proposal(NamedTuple):
    """An ISR to ask the controller for, the partition epoch on which it builds, and the known epochs of its brokers."""

    isr: frozenset[int]
    partition_epoch: int
    broker_epochs: Mapping[int, int] = MappingProxyType({})  # those that are known


class Decision(NamedTuple):
    """The consequences of an event: which watermarks have moved, and the ISR to ask the controller for, or None."""

    moves_high_watermark: bool = False
    proposal: Proposal | None = None
    moves_low_watermark: bool = False


class Election(NamedTuple):
    """The initial state of `InSyncReplicas`: replicas and epochs of LeaderAndIsr, the leader's log end, high watermark.

    `adding` are the replicas that a reassignment adds; they do not count as missing before its end.
    """

    leader: int
    replicas: tuple[int, ...]
    isr: frozenset[int]
    leader_epoch: int
    partition_epoch: int
    log_end_offset: int
    high_watermark: int
    adding: tuple[int, ...] = ()


class InSyncReplicas:
    """The replicas of a led partition in one leader epoch; computes the `high_watermark` and proposes ISRs.

    `committed` is the ISR that the controller has confirmed, `pending` the one that it was asked for, or None.
    `start_offset` is where the epoch began: the leader's log end offset when it was elected.
    """

    __slots__ = (
        "_committable_offset", "_eligible", "_followers", "_lag_time_max_ms", "_leader", "_log_end_offset",
        "_wanted_count", "committed", "high_watermark", "leader_epoch", "min_isr", "partition_epoch", "pending",
        "start_offset",
    )  # fmt: skip

    def __init__(
        self, election: Election, min_insync_replicas: int, lag_time_max_ms: int, eligible: Collection[int], now_ms: int
    ) -> None:
        """Takes the election's ISR as caught up at `now_ms`; no follower's log end is known yet."""
        self._leader = election.leader
        self.start_offset = self._log_end_offset = election.log_end_offset
        self._committable_offset = MAX_LONG
        self._lag_time_max_ms = lag_time_max_ms
        self._eligible = frozenset(eligible)
        self._followers = {
            each: Follower(last_caught_up_ms=now_ms if each in election.isr else NEVER_MS)
            for each in election.replicas
            if each != election.leader
        }
        self._wanted_count = len(election.replicas) - len(election.adding)
        self.leader_epoch = election.leader_epoch
        self.partition_epoch = election.partition_epoch
        self.committed = election.isr
        self.pending: frozenset[int] | None = None
        self.high_watermark = min(election.high_watermark, election.log_end_offset)
        self.min_isr = effective_min_isr(min_insync_replicas, len(election.replicas))

    @property
    def maximal(self) -> frozenset[int]:
        """The replicas of `committed` and `pending`: any may be elected, whichever of them the controller has."""
        return self.committed if self.pending is None else self.committed | self.pending

    @property
    def has_enough(self) -> bool:
        """Whether a write with acks=all is accepted: the committed ISR is no smaller than the min ISR."""
        return len(self.committed) >= self.min_isr

    @property
    def is_under_replicated(self) -> bool:
        """Whether the ISR lacks replicas of the partition, apart from those that a reassignment adds."""
        return len(self.committed) < self._wanted_count

    def low_watermark(self, log_start_offset: int) -> int:
        """Returns the least log start offset of the leader (`log_start_offset`) and the followers that may lead next.

        These are alive, or in sync: what is known of who is alive may be older than the ISR.
        """
        counted = self._may_lead_next
        starts = [state.log_start_offset for each, state in self._followers.items() if each in counted]
        return min([log_start_offset, *starts])

    def read_replicas(self, offset: int) -> list[ReadReplica]:
        """Returns the followers in sync whose logs hold `offset`, so that consumers may read there (KIP-392)."""
        return [
            ReadReplica(state.log_end_offset, state.last_caught_up_ms, each)
            for each, state in self._in_sync()
            if state.log_start_offset <= offset <= state.log_end_offset
        ]

    def outcome_of(self, next_offset: int) -> ErrorCode | None:
        """Returns NONE, or an error, for an acks=all write that ends before `next_offset`; None while it has to wait.

        The error is NOT_ENOUGH_REPLICAS_AFTER_APPEND where the ISR shrank below the effective min ISR meanwhile.
        """
        if self.high_watermark < next_offset:
            return None
        is_enough = len(self.maximal) >= self.min_isr
        return ErrorCode.NONE if is_enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # Events.

    def begin_at(self, log_start_offset: int) -> None:
        """Raises the high watermark to where the leader's log, which was empty, begins now."""
        self.high_watermark = max(self.high_watermark, log_start_offset)

    def appended(self, log_end_offset: int, now_ms: int, committable_offset: int = MAX_LONG) -> Decision:
        """Moves the high watermark, if it can, up to the leader's log end or the `committable_offset`."""
        self._log_end_offset = log_end_offset
        self._committable_offset = committable_offset
        return self._decision(now_ms)

    def fetched(
        self,
        follower: int,
        offset: int,
        now_ms: int,
        log_start_offset: int = UNKNOWN_OFFSET,
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> Decision:
        """Updates a follower's state by a fetch from `offset`, where its log ends; it may join the ISR.

        Raises NotLeaderError for a broker that has no replica.
        """
        state = self._followers.get(follower)
        if state is None:
            raise NotLeaderError(f"broker {follower} is no follower of this partition's leader {self._leader}")
        state.fetched(offset, self._log_end_offset, now_ms)
        begins_later = log_start_offset > state.log_start_offset
        state.log_start_offset = log_start_offset
        state.broker_epoch = broker_epoch
        proposal = self._propose(self.committed | {follower}) if self._may_join(follower, state) else None
        decision = self._decision(now_ms, proposal)
        return decision._replace(moves_low_watermark=True) if begins_later else decision

    def check(self, now_ms: int) -> Decision:
        """Proposes an ISR without followers that lag too long; called every half of `replica.lag.time.max.ms`."""
        late = frozenset(each for each, state in self._in_sync() if not self._is_caught_up(state, now_ms))
        return Decision(proposal=self._propose(self.committed - late) if late and self.pending is None else None)

    def eligible(self, brokers: Iterable[int], now_ms: int) -> Decision:
        """Sets the brokers that may be in the ISR: those alive and not shutting down."""
        before, self._eligible = self._may_lead_next, frozenset(brokers)
        return self._decision_after(before, now_ms)

    def accepted(self, isr: Collection[int], leader_epoch: int, partition_epoch: int, now_ms: int) -> Decision:
        """Sets the ISR that the controller has answered with, unless that is out of date.

        An answer with the current partition epoch and the pending ISR counts: the controller had it before.
        """
        committed = frozenset(isr)
        is_newer = partition_epoch > self.partition_epoch
        is_known = partition_epoch == self.partition_epoch and committed == self.pending
        if leader_epoch != self.leader_epoch or not (is_newer or is_known):
            return Decision()
        before = self._may_lead_next
        self.committed, self.pending, self.partition_epoch = committed, None, partition_epoch
        return self._decision_after(before, now_ms)

    def refused(self, proposal: Proposal, code: ErrorCode, now_ms: int) -> Decision:
        """Gives up the pending ISR, or asks for it again by the returned decision, as the controller's error demands.

        An error that answers another proposal than the pending one is late and ignored.
        """
        if proposal[:2] != (self.pending, self.partition_epoch) or code in PENDING_UNTIL_LEADER_AND_ISR:
            return Decision()
        if code in BACK_TO_COMMITTED:
            before, self.pending = self._may_lead_next, None
            return self._decision_after(before, now_ms)
        return Decision(proposal=proposal)

    def reconfigured(self, min_insync_replicas: int, now_ms: int) -> Decision:
        """Sets another `min.insync.replicas`, which may let the high watermark move."""
        self.min_isr = effective_min_isr(min_insync_replicas, len(self._followers) + 1)
        return self._decision(now_ms)

    # Rules.

    def _in_sync(self) -> list[tuple[int, Follower]]:
        return [(each, state) for each, state in self._followers.items() if each in self.committed]

    def _is_caught_up(self, state: Follower, now_ms: int) -> bool:
        return state.is_caught_up(self._log_end_offset, now_ms, self._lag_time_max_ms)

    def _may_join(self, follower: int, state: Follower) -> bool:
        return (
            self.pending is None
            and follower not in self.committed
            and follower in self._eligible
            and state.log_end_offset >= max(self.high_watermark, self.start_offset)
        )

    def _propose(self, isr: frozenset[int]) -> Proposal:
        self.pending = isr
        epochs = {each: self._followers[each].broker_epoch for each in isr if each in self._followers}
        return Proposal(isr, self.partition_epoch, epochs)

    @property
    def _may_lead_next(self) -> frozenset[int]:
        return self._eligible | self.maximal

    def _decision_after(self, could_lead: frozenset[int], now_ms: int) -> Decision:
        """Returns the consequences where followers may lead no more that could before."""
        moves_low_watermark = not (could_lead - self._may_lead_next).isdisjoint(self._followers)
        return self._decision(now_ms)._replace(moves_low_watermark=moves_low_watermark)

    def _decision(self, now_ms: int, proposal: Proposal | None = None) -> Decision:
        return Decision(self._moves_high_watermark(now_ms), proposal)

    def _moves_high_watermark(self, now_ms: int) -> bool:
        if not self.has_enough:
            return False
        maximal = self.maximal
        end = min(self._log_end_offset, self._committable_offset)
        for each, state in self._followers.items():
            if state.log_end_offset < end and (
                each in maximal or (each in self._eligible and self._is_caught_up(state, now_ms))
            ):
                end = state.log_end_offset
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True


def in_rack(
    rack: str, leader: int, followers: Iterable[ReadReplica], rack_of: Callable[[int], str | None]
) -> int | None:
    """Returns the best follower in a consumer's rack; None where it reads from the leader."""
    if rack_of(leader) == rack:
        return None
    best = max((one for one in followers if rack_of(one.broker_id) == rack), default=None)
    return None if best is None else best.broker_id
