"""Members of a group, in any interleaving with joins, leaves and expiries, come to one owner for each partition.

ZooKeeper is a model here: ids, owner nodes, one-shot watches. A step takes one event of one member and does what the
table says. What a member begins to consume is its own at that moment; in the end all is owned, by the plan.
"""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.client.consumer import rebalance
from millrace.client.consumer.assignment import assign_range
from millrace.client.consumer.rebalance import Changed, Elapsed, Member, Phase

NAMES = ("a", "b", "c")
BROKERS = {"t": (1, 2, 1, 2), "u": (1,)}
STEPS = st.lists(
    st.tuples(st.sampled_from(("step", "step", "step", "step", "join", "leave", "expire")), st.sampled_from(NAMES)),
    max_size=80,
)
ENOUGH = 2_000


class World:
    """ZooKeeper and the members."""

    def __init__(self):
        self.ids, self.owners = set(), {}
        self.group_watches, self.owner_watches = set(), set()
        self.members, self.queues = {}, {name: deque() for name in NAMES}

    def join(self, name):
        if name not in self.members:
            self.members[name] = Member(max_retries=3)
            self.queues[name] = deque([rebalance.SessionLost()])

    def leave(self, name):
        if name in self.members:
            self.queues[name].append(rebalance.Close())

    def expire(self, name):
        if name in self.ids:
            self.drop(name)
            self.queues[name].append(rebalance.SessionLost())

    def drop(self, name):
        self.delete([one for one, thread in self.owners.items() if thread.member == name])
        self.ids.discard(name)
        self.tell_group()

    def delete(self, partitions):
        for one in partitions:
            del self.owners[one]
            for watcher in [name for name, watched in self.owner_watches if watched == one]:
                self.owner_watches.discard((watcher, one))
                self.queues[watcher].append(Changed())

    def tell_group(self):
        watchers, self.group_watches = self.group_watches, set()
        for name in sorted(watchers):
            self.queues[name].append(Changed())

    def step(self, name):
        member = self.members.get(name)
        if member is None:
            return False
        if self.queues[name]:
            event = self.queues[name].popleft()
        elif member.phase is Phase.WAITING:
            event = Elapsed()
        else:
            return False
        self.members[name], actions = rebalance.step(member, event)
        for action in actions:
            self.act(name, action)
        if self.members[name].phase is Phase.CLOSED:
            self.drop(name)
            del self.members[name]
        return True

    def act(self, name, action):
        mine = {one for one, thread in self.owners.items() if thread.member == name}
        tell = self.queues[name].append
        match action:
            case rebalance.Register():
                self.ids.add(name)
                self.tell_group()
                tell(rebalance.Registered())
            case rebalance.ReadGroup():
                self.group_watches.add(name)
                plan = assign_range({one: {"t": 2, "u": 1} for one in self.ids}, BROKERS)
                tell(rebalance.Planned({one: thread for one, thread in plan.items() if thread.member == name}))
            case rebalance.Release(partitions):
                self.delete(mine.intersection(partitions))
                tell(rebalance.Released())
            case rebalance.Claim(partitions):
                tell(self.claim(name, partitions))
            case rebalance.Consume(partitions):
                expired = rebalance.SessionLost() in self.queues[name]
                assert expired or all(self.owners[one] == thread for one, thread in partitions.items())
            case rebalance.Forget():
                self.delete(mine)
            case rebalance.Wait(partition) | rebalance.Fail(partition):
                if partition in self.owners:
                    self.owner_watches.add((name, partition))
                else:
                    tell(Changed())

    def claim(self, name, partitions):
        taken = []
        for one, thread in sorted(partitions.items()):
            if one in self.owners and self.owners[one].member != name:
                return rebalance.Refused(one, tuple(taken))
            self.owners[one] = thread
            taken.append(one)
        return rebalance.Claimed()


@settings(max_examples=300)
@given(STEPS)
def test_every_interleaving_ends_with_one_owner_each(steps):
    world = World()
    for what, name in steps:
        getattr(world, what)(name)
    for _ in range(ENOUGH):
        went_on = [world.step(name) for name in NAMES]
        if not any(went_on):
            break
    else:
        raise AssertionError("the group does not come to rest")
    plan = assign_range({one: {"t": 2, "u": 1} for one in world.ids}, BROKERS)
    assert world.owners == plan
    held = {one: thread for member in world.members.values() for one, thread in member.held.items()}
    assert held == plan
    assert {member.phase for member in world.members.values()} <= {Phase.OWNING}
