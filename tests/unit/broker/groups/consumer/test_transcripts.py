"""Transcripts of KIP-848 groups: events on lines that begin with `>`, what follows from them indented below.

    > join m topics=a,b static=i rebalance=900      ConsumerGroupHeartbeat of epoch 0; the member chooses its own id
    > beat m owned=a:0,1                            at the epoch that it has been told; `owned` as it reports it
    > leave m                > away m static=i      for good; for a while
    > JoinGroup c owned=a:0,1 static=i              a member of the classic protocol, whose ids are c-1, c-2 and so on
    > SyncGroup c c=a:0,1 d=a:2,3                   assignments of members by their names, which only a leader gives
    > Heartbeat c            > LeaveGroup c
    > topics a=4 b=2         the cluster's topics and how many partitions each has
    > wait 3000              time passes, timers run out
    > store waits            what is stored from here on waits for
    > store succeeds         or `store fails ERROR`
    > reload                 another broker takes over, or this one starts again

Records are shown as `stored`, those that delete as `-`. The last line of each event is the group: its state, its epoch
and that of its target, and each member with its epoch and what it is assigned.
"""

import heapq
from itertools import count
from uuid import UUID

from millrace.errors import ErrorCode
from millrace.wire.encoder import Encoder
from millrace_broker.cluster.metadata_image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from millrace_broker.groups import membership
from millrace_broker.groups.classic.classic_group import ClassicGroup
from millrace_broker.groups.consumer.classic_members import read_assignment, write_assignment
from millrace_broker.groups.consumer.consumer_groups import ConsumerGroups
from millrace_broker.groups.consumer.events import Heartbeat, HeartbeatResponse, Refusal
from millrace_broker.groups.consumer.member import NOTHING, assignment_of, by_topic
from millrace_broker.groups.consumer.records import Kind, decode_key, decode_value
from millrace_broker.groups.group import (
    CancelTimer,
    Join,
    JoinProtocol,
    JoinResult,
    Leaving,
    Respond,
    SetTimer,
    StoreRecords,
    Succession,
    Sync,
)
from millrace_broker.groups.group_coordinator import REPLAYERS
from millrace_broker.groups.offsets import Offsets
from millrace_broker.groups.records import GROUP_KEY_VERSION, key_version, read_group_value
from millrace_broker.properties.coordinator_config import ConsumerGroupConfig, GroupConfig
from millrace_support import transcripts
from millrace_support.transcripts import plays

START_MS = 1_700_000_000_000


class Ticket:
    """A request that waits for its response."""

    def __init__(self, stage, name):
        self.stage, self.name = stage, name

    def set_result(self, result):
        self.stage.answer(self.name, result)


class Stage(transcripts.Stage):
    """Plays one transcript; it is the coordinator, and the shard, of the group `g`."""

    def __init__(self, properties):
        super().__init__()
        self.config = GroupConfig(group_initial_rebalance_delay_ms=0)
        self.consumer_groups = ConsumerGroups(
            ConsumerGroupConfig.from_properties(properties), self.config, lambda: self.image
        )
        self.groups = {}
        self.offsets = Offsets()
        self.log = []
        self.elapsed_ms = 0
        self.timers = {}
        self.queue = []
        self.order = count()
        self.waiting = []
        self.holds = False
        self.epochs, self.generations, self.ids, self.lives = {}, {}, {}, {}
        self.on_topics(a="4")

    # Events.

    def on_topics(self, *plain, **options):
        topics = {
            name: TopicInfo(
                name,
                UUID(int=ord(name)),
                tuple(PartitionInfo(index, 1, 0, (1,), (1,)) for index in range(int(partitions))),
                {},
            )
            for name, partitions in options.items()
        }
        self.image = MetadataImage("c", 1, {1: BrokerInfo(1, "h", 1)}, topics)

    def on_join(self, *plain, **options):
        topics = frozenset(options["topics"].split(",")) if "topics" in options else None
        self.beat(
            plain[0],
            0,
            instance_id=options.get("static"),
            topic_names=topics if topics or "pattern" in options else frozenset("a"),
            topic_regex=options.get("pattern"),
            rebalance_timeout_ms=int(options.get("rebalance", 900)),
            owned=NOTHING,
        )

    def on_beat(self, *plain, **options):
        owned = assignment(options["owned"]) if "owned" in options else None
        self.beat(plain[0], self.epochs[plain[0]], instance_id=options.get("static"), owned=owned)

    def on_leave(self, *plain, **options):
        self.beat(plain[0], -1, instance_id=options.get("static"))

    def on_away(self, *plain, **options):
        self.beat(plain[0], -2, instance_id=options.get("static"))

    def beat(self, name, epoch, **said):
        request = Heartbeat(group_id="g", member_id=name, member_epoch=epoch, **said)
        self.consumer_groups.heartbeat(self, request, Ticket(self, name))

    def on_JoinGroup(self, *plain, **options):  # noqa: N802  # the API's name
        (name,) = plain
        self.lives[name] = self.lives.get(name, 0) + (name not in self.ids)
        join = Join(
            ticket=Ticket(self, name),
            member_id=self.ids.get(name, ""),
            instance_id=options.get("static"),
            client_id=name,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=int(options.get("rebalance", 800)),
            session_timeout_ms=int(options.get("session", 7000)),
            protocol_type="consumer",
            protocols=(JoinProtocol("range", subscription(options.get("owned", "none"))),),
            fresh_member_id=f"{name}-{self.lives[name]}",
            requires_known_member_id=False,
            supports_skipping_assignment=True,
        )
        membership.join(self, "g", join)

    def on_SyncGroup(self, *plain, **options):  # noqa: N802
        (name,) = plain
        given = {self.ids[one]: write_assignment(indexes(text), 3) for one, text in options.items()}
        generation = self.generations[name]
        sync = Sync(Ticket(self, name), self.ids[name], None, generation, "consumer", "range", given)
        membership.sync(self, "g", sync)

    def on_Heartbeat(self, *plain, **options):  # noqa: N802
        (name,) = plain
        error = membership.heartbeat(self, "g", self.ids[name], options.get("static"), self.generations[name])
        self.say(f"{name}: {error.name}")

    def on_LeaveGroup(self, *plain, **options):  # noqa: N802
        errors = membership.leave(self, "g", [Leaving(self.ids.get(name, name)) for name in plain])
        for name, error in zip(plain, errors, strict=True):
            self.say(f"{name}: {error.name}")

    def on_forget(self, *plain, **options):
        del self.ids[plain[0]]

    def on_wait(self, *plain, **options):
        end = self.elapsed_ms + int(plain[0])
        while self.queue and self.queue[0][0] <= end:
            due, order, timer, group = heapq.heappop(self.queue)
            if self.timers.get(timer) == order:
                self.elapsed_ms = due
                del self.timers[timer]
                self.say(f"{due} ms: {' '.join(timer)} timer")
                if self.groups.get("g") is group:
                    self.perform(group, group.timer_expired(timer, self.now_ms()))
        self.elapsed_ms = end

    def on_store(self, *plain, **options):
        self.holds = plain == ("waits",)
        error = ErrorCode[plain[1]] if plain[0] == "fails" else ErrorCode.NONE
        waiting, self.waiting = self.waiting, []
        for group, store in () if self.holds else waiting:
            self.end(group, store, error)

    def on_reload(self, *plain, **options):
        for group in self.groups.values():
            self.perform(group, group.unloaded(ErrorCode.NOT_COORDINATOR))
        self.groups = {}
        self.timers.clear()
        replayers = REPLAYERS | self.consumer_groups.replayers
        for key, value in self.log:
            replayers[key_version(key)](self, key, value)
        for group in tuple(self.groups.values()):
            self.perform(group, group.loaded(self.now_ms()))

    # The coordinator and its shard.

    def shard(self, group_id):
        return self

    def now_ms(self):
        return START_MS + self.elapsed_ms

    def perform(self, group, effects):
        for effect in effects:
            match effect:
                case Respond(ticket, result):
                    ticket.set_result(result)
                case SetTimer(timer, delay_ms, restarts):
                    if restarts or timer not in self.timers:
                        order = self.timers[timer] = next(self.order)
                        heapq.heappush(self.queue, (self.elapsed_ms + delay_ms, order, timer, group))
                case CancelTimer(timer):
                    self.timers.pop(timer, None)
                case StoreRecords() if self.holds:
                    self.waiting.append((group, effect))
                case StoreRecords():
                    self.end(group, effect, ErrorCode.NONE)
                case Succession(successor, then):
                    self.succeed(group, successor, then)

    def succeed(self, group, successor, then):
        self.groups.pop("g", None)
        self.perform(group, group.unloaded(ErrorCode.REBALANCE_IN_PROGRESS))
        if successor is not None:
            self.groups["g"] = successor
            self.perform(successor, then)

    def end(self, group, store, error):
        if error:
            self.say(f"not stored: {error.name}")
        else:
            self.log += store.records
            for record in store.records:
                self.say(f"stored: {self.record(*record)}")
        self.perform(group, group.stored(store.outcome, error, self.now_ms()))

    # What is shown.

    def record(self, raw_key, raw_value):
        if key_version(raw_key) == GROUP_KEY_VERSION:
            kept = None if raw_value is None else read_group_value(raw_value)
            return f"classic group, generation {kept.generation}" if kept else "- classic group"
        key = decode_key(raw_key)
        if raw_value is None:
            return f"- {key.kind.name} {key.name}".rstrip()
        value = decode_value(key.kind, raw_value)
        match key.kind:
            case Kind.GROUP | Kind.TARGET_EPOCH:
                return f"{key.kind.name} {value.epoch}"
            case Kind.TARGET:
                return f"TARGET {key.name} {self.text(value)}"
            case Kind.CURRENT:
                back = f", {self.text(value.pending_revocation)} to give back" if value.pending_revocation else ""
                return f"CURRENT {key.name} {value.state.name} epoch {value.epoch} {self.text(value.assigned)}{back}"
            case _:
                return f"{key.kind.name} {key.name}"

    def answer(self, name, result):
        match result:
            case HeartbeatResponse():
                self.epochs[name] = result.member_epoch
                told = "" if result.assignment is None else f", {self.text(result.assignment)}"
                self.say(f"{name}: epoch {result.member_epoch}{told}")
            case Refusal(error):
                self.say(f"{name}: {error.name}")
            case JoinResult():
                if not result.error:
                    self.ids[name], self.generations[name] = result.member_id, result.generation
                told = result.error.name if result.error else f"{result.member_id} in generation {result.generation}"
                self.say(f"{name} joined: {told}{', leads' if result.leader == result.member_id != '' else ''}")
            case _:
                partitions = read_assignment(result.assignment)[0]
                told = " ".join(f"{topic}:{','.join(map(str, sorted(one)))}" for topic, one in partitions.items())
                self.say(f"{name} synced: {result.error.name if result.error else told or 'nothing'}")

    def state(self):
        group = self.groups.get("g")
        if group is None:
            return "[no group]"
        if isinstance(group, ClassicGroup):
            return f"[classic {group.state_name}, generation {group.generation}]"
        state = group.state
        members = "".join(
            f" | {member.member_id} at {member.current.epoch}: {self.text(member.current.assigned)}"
            for member in state.members.values()
        )
        return f"[{group.state_name}, epoch {state.epoch}, target {state.target_epoch}{members}]"

    def text(self, assigned):
        names = {topic.topic_id: topic.name for topic in self.image.topics.values()}
        return " ".join(f"{names[one]}:{','.join(map(str, found))}" for one, found in by_topic(assigned).items()) or "-"


def indexes(text):
    """`a:0,1` or `none`."""
    topics = [one.split(":") for one in text.split("+") if one != "none"]
    return {topic: [int(index) for index in found.split(",")] for topic, found in topics}


def assignment(text):
    return assignment_of({UUID(int=ord(topic)): found for topic, found in indexes(text).items()})


def subscription(owned):
    """Of topic `a`, in version 3, which is what clients of today send."""
    out = Encoder(flexible=False)
    out.int16(3)
    out.array_length(1)
    out.string("a")
    out.int32(-1)
    found = indexes(owned)
    out.array_length(len(found))
    for topic, partitions in found.items():
        out.string(topic)
        out.int32_array(partitions)
    out.int32(-1)
    out.string(None)
    return out.joined()


test_a_consumer_group_does_as_its_transcript_says = plays("consumer", Stage)
