"""Who leads a partition, for every state of three replicas: in sync, eligible or neither, alive, and what they lost.

The expected leader is found in another way than in `elections`: by sorting the replicas by what they have.
"""

from itertools import product

import pytest

from millrace.leader_states import NO_LEADER, RECOVERED, RECOVERING
from millrace.zk.eligibility import NO_ONE, Eligibility
from millrace_broker.controller.cluster_state import Assignment, LeaderAndIsr, LiveBroker
from millrace_broker.controller.elections import (
    elect_after_failure,
    elect_after_restart,
    elect_at_shutdown,
    elect_in_target,
    elect_longest,
    elect_preferred,
    sound_first,
)
from millrace_broker.controller.eligibility import (
    NOTHING_LOST,
    BrokerLosses,
    Loss,
    LostReplicas,
    MinIsr,
    SeenLosses,
    eligibility_after,
    may_have_eligible,
    without_lost,
)
from millrace_broker.storage import TopicPartition

REPLICAS = (1, 2, 3)
ASSIGNMENT = Assignment(REPLICAS)
KEY = TopicPartition("t", 0)
CONFIGS = {"topics/t": 7}
TWO = MinIsr(2, CONFIGS)
PLACES = ("in sync", "eligible", "out")
LOSSES = ("nothing", "power", "disk")
EVERY_REPLICA = list(product(PLACES, (True, False), LOSSES))


def of(replicas, *, what, index):
    return tuple(number for number, one in zip(REPLICAS, replicas, strict=True) if one[index] == what)


def expected_leader(replicas, *, is_unclean):
    """Returns who leads where nobody has led: the first of those with the most; None for nobody."""

    def has(one):
        place, _, loss = one
        if place == "out":
            return "nothing certain" if loss != "disk" else "nothing"
        return {"nothing": "all", "power": "most", "disk": "nothing"}[loss]

    known = dict(zip(REPLICAS, map(has, replicas), strict=True))
    alive = of(replicas, what=True, index=1)
    waits = "all" in known.values()
    in_sync = [one for one in alive if known[one] == "all" and replicas[one - 1][0] == "in sync"]
    wanted = [in_sync, [one for one in alive if known[one] == "all"]]
    if not waits:
        wanted += [[one for one in alive if known[one] == "most"]]
        wanted += [alive] if set(known.values()) == {"nothing"} else []
    if is_unclean:
        wanted += [[one for one in alive if known[one] == "most"]]
        wanted += [[one for one in alive if known[one] != "nothing"]]
    return next((group[0] for group in wanted if group), None)


@pytest.mark.parametrize("is_unclean", [False, True])
def test_the_leader_is_who_has_the_most(is_unclean):
    looked_at = 0
    for replicas in product(EVERY_REPLICA, repeat=3):
        eligibility = Eligibility(eligible=of(replicas, what="eligible", index=0))
        state = LeaderAndIsr(NO_LEADER, 4, of(replicas, what="in sync", index=0), eligibility=eligibility)
        lost = LostReplicas(
            emptied=frozenset(of(replicas, what="disk", index=2)),
            powerless=frozenset(of(replicas, what="power", index=2)),
        )
        online = frozenset(of(replicas, what=True, index=1))
        left = without_lost(state, lost)
        after = elect_after_failure(ASSIGNMENT, left, online, online, is_unclean_allowed=is_unclean) or left
        leader = expected_leader(replicas, is_unclean=is_unclean)
        assert after.leader == (NO_LEADER if leader is None else leader), replicas
        assert set(after.isr).isdisjoint(lost.emptied) or lost.emptied == set(REPLICAS)
        if leader is not None:
            assert leader in after.isr
            is_lossy = leader not in (*left.isr, *left.eligibility.eligible)
            is_safe = leader in left.eligibility.doubtful or lost.emptied == set(REPLICAS)
            waits = bool(left.isr or left.eligibility.eligible)
            assert (after.leader_recovery_state == RECOVERING) == (is_lossy and (waits or not is_safe)), replicas
        looked_at += 1
    assert looked_at == 18**3


LED = LeaderAndIsr(1, 4, (1, 2, 3))
ALL_ALIVE = frozenset(REPLICAS)


@pytest.mark.parametrize(
    ("before", "after", "min_isr", "expected"),
    [
        (LED, LeaderAndIsr(1, 5, (1, 2)), TWO, ()),  # enough are in sync: the high watermark moves on
        (LED, LeaderAndIsr(1, 5, (1,)), TWO, (2, 3)),
        (LED, LeaderAndIsr(1, 5, (1,)), None, ()),  # a leader that does not say what its min ISR is
        (LED, LeaderAndIsr(1, 5, (1,)), MinIsr(1, CONFIGS), ()),
        (LED, LeaderAndIsr(1, 5, (1, 2)), MinIsr(9, CONFIGS), (3,)),  # no more than there are replicas
        (LED, LeaderAndIsr(2, 5, (2,)), TWO, (1, 3)),
        (LeaderAndIsr(1, 4, (1,)), LeaderAndIsr(2, 5, (2,)), TWO, ()),  # an unclean election
        (LeaderAndIsr(1, 4, (1,), eligibility=Eligibility((2,))), LeaderAndIsr(2, 5, (2,)), TWO, (1,)),
        (LeaderAndIsr(1, 4, (1,), eligibility=Eligibility((2,))), LeaderAndIsr(1, 5, (1, 3)), TWO, ()),
        (LeaderAndIsr(1, 4, (1,), eligibility=Eligibility((2, 9))), LeaderAndIsr(1, 5, (1,)), TWO, (2,)),  # 9 has left
        (LeaderAndIsr(1, 4, (1,), eligibility=Eligibility((2, 9))), LeaderAndIsr(NO_LEADER, 5, (1,)), None, (2,)),
    ],
)
def test_who_is_eligible_after_a_change(before, after, min_isr, expected):
    after = LeaderAndIsr(after.leader, after.leader_epoch, after.isr, eligibility=before.eligibility)
    found = eligibility_after(ASSIGNMENT, before, after, min_isr)
    assert found.eligible == expected
    if after.leader != NO_LEADER:
        assert found.configs == (CONFIGS if expected else {})
        assert may_have_eligible(before, after) or not expected


def test_a_leader_ends_what_was_doubtful_or_empty():
    known = Eligibility(doubtful=(2,), empty=(3,))
    before = LeaderAndIsr(NO_LEADER, 4, (1,), eligibility=known)
    led = LeaderAndIsr(1, 5, (1,), eligibility=known)
    assert eligibility_after(ASSIGNMENT, before, led, TWO) == NO_ONE
    assert eligibility_after(ASSIGNMENT, before, before, TWO) == known


@pytest.mark.parametrize("power", [None, 10, 30])
@pytest.mark.parametrize("disk", [None, 10, 30])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("leader", [1, NO_LEADER])
@pytest.mark.parametrize("epoch", [10, 30, 40])
@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("noted", [None, 5, 0])
def test_what_broker_2_has_lost_since_a_state_was_written(power, disk, place, leader, epoch, tells, kept, noted):  # noqa: PLR0917
    """The state was written in transaction 20, and the broker has registered in transaction `epoch`.

    An election was noted so many transactions before that registration, or none since controllers keep notes.
    """
    losses = BrokerLosses(
        {2: LiveBroker(2, epoch, (), min_insync_replicas=1 if tells else None)},
        {} if disk is None else {2: Loss(disk, frozenset({KEY}) if kept else frozenset())},
        {} if power is None else {2: Loss(power)},
        SeenLosses(epoch, {} if noted is None else {2: epoch - noted}),
    )
    isr, eligible = ((1, 2), ()) if place == "in sync" else ((1,), (2,) if place == "eligible" else ())
    state = LeaderAndIsr(leader, 4, isr, eligibility=Eligibility(eligible))
    lost = losses.since(KEY, ASSIGNMENT, state, 20)
    counts = place != "out"
    assert (2 in lost.powerless) == (power == 30 and counts)
    assert (2 in lost.emptied) == (disk == 30 and not kept and (counts or leader == NO_LEADER))
    has_lost_now = epoch == power or (epoch == disk and not kept)
    assert (2 in lost.unsure) == (place == "eligible" and (not tells or (has_lost_now and noted != 0)))
    assert losses.concern(2) == (not tells or disk is not None or power is not None)
    assert not losses.concern(1)


@pytest.mark.parametrize("epoch", [10, 30, 40])
@pytest.mark.parametrize("seen", [None, 10, 20, 30, 40])
@pytest.mark.parametrize("since", [5, 25, 32])
@pytest.mark.parametrize("is_registration", [True, False])
@pytest.mark.parametrize("leader", [1, NO_LEADER])
def test_what_was_lost_counts_for_a_newer_state_until_a_controller_has_seen_it(
    leader, is_registration, since, seen, epoch
):
    """The state was written in transaction 35, after the loss that counts from transaction 30.

    A report that does not name its registration counts in that one, which is the last before the report.
    """
    loss = Loss(30, is_registration=is_registration)
    known = SeenLosses(since, {} if seen is None else {2: seen})
    losses = BrokerLosses({2: LiveBroker(2, epoch, ())}, {2: loss}, {2: loss}, known)
    until = max(since, seen or 0)
    counts = until < epoch and (until < 30 if is_registration else epoch <= 30)
    lost = losses.since(KEY, ASSIGNMENT, LeaderAndIsr(leader, 4, (1, 2)), 35)
    assert lost == (LostReplicas(frozenset({2}), frozenset({2})) if counts else NOTHING_LOST)


@pytest.mark.parametrize("loss", ["new_disks", "power_losses"])
@pytest.mark.parametrize("is_registration", [True, False])
@pytest.mark.parametrize(("epoch", "lost_at"), [(10, 10), (40, 30), (10, 30)])
def test_a_controller_has_seen_each_live_broker_up_to_its_registration(epoch, lost_at, loss, is_registration):
    """A loss in a later transaction than the registration is one of a former release, or of a process to come."""
    losses = BrokerLosses({2: LiveBroker(2, epoch, ())}, {}, {}, SeenLosses(5, {1: 7, 2: 6}))
    losses = losses._replace(**{loss: {2: Loss(lost_at, is_registration=is_registration)}})
    assert losses.seen_now() == {1: 7, 2: epoch}
    seen = losses._replace(seen=SeenLosses(5, losses.seen_now()))
    assert seen.since(KEY, ASSIGNMENT, LeaderAndIsr(1, 4, (1, 2)), 50) == NOTHING_LOST


@pytest.mark.parametrize(("loss", "lost"), [("new_disks", "emptied"), ("power_losses", "powerless")])
@pytest.mark.parametrize(("isr", "eligible"), [((1, 2), ()), ((1,), (2,))])
def test_a_report_that_is_read_before_its_registration_still_counts_with_that(loss, lost, isr, eligible):
    """The broker of registration 10 has reported a loss in 30, and others have written a state in 35 since then."""
    known = BrokerLosses({2: LiveBroker(2, 10, (), min_insync_replicas=1)}, {}, {}, SeenLosses(5, {2: 10}))
    known = known._replace(**{loss: {2: Loss(30)}})
    back = {2: LiveBroker(2, 30, (), min_insync_replicas=1)}
    heard = known._replace(brokers=back, seen=SeenLosses(5, known.seen_now()))
    state = LeaderAndIsr(1, 4, isr, eligibility=Eligibility(eligible))
    assert 2 in getattr(heard.since(KEY, ASSIGNMENT, state, 35), lost)


def test_one_that_began_with_an_empty_disk_is_eligible_in_that_same_registration():
    """All brokers of a new cluster are in the registration that followed on their empty disks."""
    brokers = {one: LiveBroker(one, one, (), min_insync_replicas=2) for one in REPLICAS}
    losses = BrokerLosses(brokers, {one: Loss(one) for one in REPLICAS}, {})
    state = LeaderAndIsr(NO_LEADER, 4, (1,), eligibility=Eligibility((2,)))
    back = {1: LiveBroker(1, 30, (), min_insync_replicas=2)}
    emptied = losses._replace(
        brokers=brokers | back, new_disks=losses.new_disks | {1: Loss(30)}, seen=SeenLosses(0, losses.seen_now())
    )
    lost = emptied.since(KEY, ASSIGNMENT, state, 20)
    assert lost == LostReplicas(emptied=frozenset({1}))
    after = elect_after_restart(ASSIGNMENT, state, ALL_ALIVE, ALL_ALIVE, restarted=frozenset(), lost=lost)
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), RECOVERED)


def test_a_leader_that_lost_its_disk_leads_no_more():
    after = elect_after_restart(
        ASSIGNMENT, LED, ALL_ALIVE, ALL_ALIVE, restarted=frozenset(), lost=LostReplicas(frozenset({1}))
    )
    assert (after.leader, after.isr) == (2, (2, 3))
    assert elect_after_restart(ASSIGNMENT, LED, ALL_ALIVE, ALL_ALIVE, restarted=frozenset(), lost=NOTHING_LOST) is None


@pytest.mark.parametrize(
    ("ends", "empty", "leader"),
    [
        ({}, (), 1),
        ({}, (1,), 2),
        ({1: (3, 50), 2: (3, 70), 3: (3, 60)}, (), 2),
        ({1: (3, 50), 2: (3, 70), 3: (4, 10)}, (), 3),  # what a former leader had alone does not count
        ({1: (3, 70), 2: (3, 70)}, (), 1),
        ({2: (-1, 0)}, (), 2),  # the others do not tell
    ],
)
def test_by_hand_the_longest_log_leads(ends, empty, leader):
    state = LeaderAndIsr(NO_LEADER, 4, (), eligibility=Eligibility(empty=empty))
    after = elect_longest(ASSIGNMENT, state, ALL_ALIVE, ends)
    assert (after.leader, after.isr, after.leader_recovery_state) == (leader, (leader,), RECOVERING)


def test_by_hand_one_that_has_all_leads_before_the_longest():
    state = LeaderAndIsr(NO_LEADER, 4, (), eligibility=Eligibility((3,)))
    after = elect_longest(ASSIGNMENT, state, ALL_ALIVE, {1: (9, 90), 3: (1, 1)})
    assert (after.leader, after.leader_recovery_state) == (3, RECOVERED)
    assert elect_longest(ASSIGNMENT, state, frozenset(), {}) is None


@pytest.mark.parametrize("damaged", [frozenset(one) for one in ((), (1,), (2,), (3,), (1, 2), (2, 3), (1, 2, 3))])
@pytest.mark.parametrize("isr", [(1, 2, 3), (2, 3), (3, 1), (2,)])
def test_a_damaged_replica_leads_last(isr, damaged):
    """Whatever the reason of an election is: a sound replica in sync leads, if one is alive."""
    wanted = [one for one in REPLICAS if one in isr and one not in damaged] or sorted(isr)
    ordered = sound_first(ASSIGNMENT, damaged)
    state = LeaderAndIsr(9, 4, isr)
    after = elect_after_failure(ordered, state, ALL_ALIVE, ALL_ALIVE, is_unclean_allowed=False)
    assert after.leader == wanted[0]
    stopping = LeaderAndIsr(9, 4, (9, *isr))
    assert elect_at_shutdown(ordered, stopping, ALL_ALIVE, 9).leader == wanted[0]
    assert elect_in_target(ordered, state, ALL_ALIVE).leader == wanted[0]
    preferred = elect_preferred(ASSIGNMENT, LeaderAndIsr(3, 4, isr), ALL_ALIVE - damaged)
    assert (preferred is not None) == (1 in isr and 1 not in damaged)
