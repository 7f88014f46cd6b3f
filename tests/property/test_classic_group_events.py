"""Any sequence of events leaves a classic group whole: one generation, a leader among its members, nobody forgotten.

Members behave as they like: with old ids, in wrong generations, twice. Time passes, stores end well or not, the broker
restarts. In the end time runs on until nothing is to happen, and by then every request has had exactly one response.
"""

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millrace.errors import ErrorCode
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.classic.state import State
from millrace_broker.groups.group import (
    CancelTimer,
    Committer,
    Join,
    JoinProtocol,
    JoinResult,
    Leaving,
    Respond,
    SetTimer,
    StoreRecords,
    Sync,
)
from millrace_broker.groups.records import read_group_value
from millrace_broker.properties.coordinator_config import GroupConfig

START_MS = 1_700_000_000_000
CLIENTS = st.integers(0, 4)
INSTANCES = st.sampled_from([None, None, "one", "two"])
PROTOCOLS = st.sampled_from([("range",), ("sticky", "range"), ("range", "sticky"), ("sticky",)])
TIMEOUTS_MS = st.sampled_from([6_000, 10_000, 30_000])
ERRORS = st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR])
FAR_MS = 10**7


class Groups(RuleBasedStateMachine):
    """One group, and clients that send what they please."""

    def __init__(self):
        super().__init__()
        self.config = GroupConfig(group_initial_rebalance_delay_ms=3_000, group_max_size=4)
        self.now_ms = START_MS
        self.group = ClassicGroup("g", self.config, self.now_ms)
        self.tickets = count()
        self.open = set()
        self.ids = {}
        self.owners = {}
        self.timers = {}
        self.stores = []
        self.kept = None
        self.generation = 0

    def ticket(self, client):
        ticket = next(self.tickets)
        self.open.add(ticket)
        self.owners[ticket] = client
        return ticket

    def perform(self, effects):
        for place, effect in enumerate(effects):
            match effect:
                case Respond(ticket, result):
                    assert ticket in self.open, "answered twice, or never asked"
                    self.open.remove(ticket)
                    if isinstance(result, JoinResult):
                        self.joined(self.owners[ticket], result)
                case SetTimer(timer, delay_ms):
                    assert delay_ms >= 0
                    self.timers[timer] = self.now_ms + delay_ms
                case CancelTimer(timer):
                    self.timers.pop(timer, None)
                case StoreRecords():
                    assert place == len(effects) - 1
                    self.stores.append(effect)

    def joined(self, client, result):
        if result.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.ids[client] = result.member_id
        if result.error is ErrorCode.NONE:
            assert result.generation == self.group.generation
            assert result.member_id in self.group.members
            if result.members:
                assert result.leader == result.member_id
                assert {one.member_id for one in result.members} == {one.member_id for one in self.group.members}

    @rule(client=CLIENTS, instance=INSTANCES, protocols=PROTOCOLS, session=TIMEOUTS_MS, rebalance=TIMEOUTS_MS,
          version=st.sampled_from([3, 4, 9]), knows_id=st.booleans())  # fmt: skip
    def join(self, *, client, instance, protocols, session, rebalance, version, knows_id):
        ticket = self.ticket(client)
        join = Join(
            ticket=ticket,
            member_id=self.ids.get(client, "") if knows_id else "",
            instance_id=instance,
            client_id=str(client),
            client_host="/::1",
            rebalance_timeout_ms=rebalance,
            session_timeout_ms=session,
            protocol_type="consumer",
            protocols=tuple(JoinProtocol(name, b"\x00\x00\x00\x00\x00\x00") for name in protocols),
            fresh_member_id=f"{client}-{ticket}",
            requires_known_member_id=version >= 4,
            supports_skipping_assignment=version >= 9,
        )
        self.perform(self.group.join(join, self.now_ms))

    @rule(client=CLIENTS, instance=INSTANCES, behind=st.sampled_from([0, 0, 0, 1]))
    def sync(self, client, instance, behind):
        generation = self.group.generation - behind
        assignments = {member.member_id: b"x" for member in self.group.members}
        sync = Sync(self.ticket(client), self.ids.get(client, ""), instance, generation, None, None, assignments)
        self.perform(self.group.sync(sync, self.now_ms))

    @rule(client=CLIENTS, instance=INSTANCES)
    def heartbeat(self, client, instance):
        _, effects = self.group.heartbeat(self.ids.get(client, ""), instance, self.group.generation)
        self.perform(effects)

    @rule(clients=st.lists(CLIENTS, min_size=1, max_size=3), instance=INSTANCES)
    def leave(self, clients, instance):
        leaving = [Leaving(self.ids.get(client, ""), instance) for client in clients]
        errors, effects = self.group.leave(leaving, self.now_ms)
        assert len(errors) == len(leaving)
        self.perform(effects)

    @rule(client=CLIENTS, generation=st.sampled_from([-1, 0, 1]))
    def commit(self, client, generation):
        committer = Committer(self.ids.get(client, ""), None, generation and self.group.generation)
        if self.group.check_commit(committer) is ErrorCode.NONE:
            self.perform(self.group.committed(committer, self.now_ms))

    @precondition(lambda self: self.stores)
    @rule(error=ERRORS)
    def store_ends(self, error):
        store = self.stores.pop(0)
        if not error:
            self.kept = read_group_value(store.records[0].value)
        self.perform(self.group.stored(store.outcome, error, self.now_ms))

    @rule(milliseconds=st.sampled_from([1, 3_000, 10_000]))
    def time_passes(self, milliseconds):
        self.run_until(self.now_ms + milliseconds)

    @rule()
    def restart(self):
        self.perform(self.group.unloaded(ErrorCode.NOT_COORDINATOR))
        assert not self.open
        self.timers.clear()
        self.stores.clear()
        self.group = ClassicGroup("g", self.config, self.now_ms)
        if self.kept is not None:
            self.group = ClassicGroup.of("g", self.kept, self.config, self.now_ms)
        self.generation = self.group.generation
        self.perform(self.group.loaded(self.now_ms))

    def run_until(self, end_ms):
        while (due := min(self.timers.items(), key=lambda item: item[1], default=None)) and due[1] <= end_ms:
            timer, self.now_ms = due
            del self.timers[timer]
            self.perform(self.group.timer_expired(timer, self.now_ms))
        self.now_ms = end_ms

    @invariant()
    def the_group_is_whole(self):
        group, members = self.group, self.group.members
        assert group.generation >= self.generation
        self.generation = group.generation
        assert (members.leader in members) == (len(members) > 0)
        assert len(members) <= self.config.group_max_size or group.state is State.PREPARING_REBALANCE
        assert (len(members) == 0) <= (group.state in (State.EMPTY, State.PREPARING_REBALANCE))
        assert (group.state is State.EMPTY) <= (len(members) == 0)
        static = [member.instance_id for member in members if member.instance_id]
        assert len(static) == len(set(static))
        assert all(members.static_member_id(member.instance_id) == member.member_id for member in members
                   if member.instance_id)  # fmt: skip
        assert members.pending_sync <= {member.member_id for member in members}

    @invariant()
    def everyone_who_waits_is_known_and_has_a_timer(self):
        members = self.group.members
        waiting = {member.join_ticket for member in members} | {member.sync_ticket for member in members}
        assert self.open == waiting - {None}
        watched = {member.member_id for member in members if not member.needs_no_heartbeat} | members.pending_join
        assert {("session", member_id) for member_id in watched} <= set(self.timers)
        if self.group.state is State.PREPARING_REBALANCE:
            assert ("join",) in self.timers
        if members.pending_sync:
            assert ("sync",) in self.timers

    def teardown(self):
        while self.stores or self.timers:
            while self.stores:
                self.store_ends(ErrorCode.NONE)
            self.run_until(self.now_ms + FAR_MS)
        assert not self.open
        assert self.group.state is State.EMPTY


Groups.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestGroups = Groups.TestCase
