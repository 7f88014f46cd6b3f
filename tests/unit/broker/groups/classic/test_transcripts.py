"""Transcripts of classic groups: events on lines that begin with `>`, what follows from them indented below.

    > join a static=i protocols=range,sticky topics=t version=9 session=10000 rebalance=60000
    > sync a a=x b=y         assignments of members by their names, which only a leader gives
    > heartbeat a generation=1 static=i
    > leave a b              > expel i           by instance id, as an administrator does
    > commit a               > wait 3000         time passes, timers run out
    > store waits            what is stored from here on waits for
    > store succeeds         or `store fails ERROR`
    > reload                 another broker takes over, or this one starts again
    > forget a               the client restarts and has lost its member id

The last line of each event is the group's state. A member is named by the client, its ids are NAME-1, NAME-2 and so on.
"""

import heapq
from itertools import count

from millrace.errors import ErrorCode
from millrace.wire.encoder import Encoder
from millrace_broker.groups.classic.classic_group import ClassicGroup
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
from millrace_support import transcripts
from millrace_support.transcripts import plays

START_MS = 1_700_000_000_000


class Stage(transcripts.Stage):
    """Plays one transcript."""

    def __init__(self, settings):
        super().__init__()
        self.config = GroupConfig(**{name: int(value) for name, value in settings.items()})
        self.now_ms = 0
        self.group = ClassicGroup("g", self.config, START_MS)
        self.ids = {}
        self.names = {}
        self.fresh = {}
        self.timers = {}
        self.queue = []
        self.order = count()
        self.waiting = []
        self.holds = False
        self.kept = None

    def state(self):
        return f"[{self.group.state} generation {self.group.generation}]"

    def on_join(self, *plain, **options):
        (name,) = plain
        number = self.fresh[name] = self.fresh.get(name, 0) + 1
        fresh = f"{name}-{number}"
        self.names[fresh] = name
        version = int(options.get("version", 9))
        join = Join(
            ticket=("join", name),
            member_id=self.ids.get(name, ""),
            instance_id=options.get("static"),
            client_id=name,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
            session_timeout_ms=int(options.get("session", 10_000)),
            protocol_type=options.get("type", "consumer"),
            protocols=tuple(
                JoinProtocol(one, subscription(options.get("topics", "t")))
                for one in options.get("protocols", "range").split(",")
            ),
            fresh_member_id=fresh,
            requires_known_member_id=version >= 4,
            supports_skipping_assignment=version >= 9,
        )
        self.perform(self.group.join(join, self.clock()))
        if self.ids.get(name) != fresh and fresh not in self.group.members:
            self.fresh[name] -= 1

    def on_sync(self, *plain, **options):
        (name,) = plain
        generation = int(options.pop("generation", self.group.generation))
        static, protocol = options.pop("static", None), options.pop("protocol", None)
        assignments = {self.ids[member]: text.encode() for member, text in options.items()}
        sync = Sync(("sync", name), self.ids.get(name, ""), static, generation, "consumer", protocol, assignments)
        self.perform(self.group.sync(sync, self.clock()))

    def on_heartbeat(self, *plain, **options):
        (name,) = plain
        generation = int(options.get("generation", self.group.generation))
        error, effects = self.group.heartbeat(self.ids.get(name, ""), options.get("static"), generation)
        self.say(f"{name}: {error.name}")
        self.perform(effects)

    def on_leave(self, *plain, **options):
        self.leave([Leaving(self.ids[name], options.get("static")) for name in plain], plain)

    def on_expel(self, *plain, **options):
        self.leave([Leaving("", instance_id) for instance_id in plain], plain)

    def leave(self, leaving, names):
        errors, effects = self.group.leave(leaving, self.clock())
        for name, error in zip(names, errors, strict=True):
            self.say(f"{name}: {error.name}")
        self.perform(effects)

    def on_commit(self, *plain, **options):
        name = plain[0] if plain else None
        generation = int(options.get("generation", self.group.generation if name else -1))
        committer = Committer(self.ids.get(name, ""), options.get("static"), generation)
        error = self.group.check_commit(committer)
        self.say(f"{name or 'nobody'}: {error.name}")
        if not error:
            self.perform(self.group.committed(committer, self.clock()))

    def on_wait(self, *plain, **options):
        end = self.now_ms + int(plain[0])
        while self.queue and self.queue[0][0] <= end:
            due, order, timer = heapq.heappop(self.queue)
            if self.timers.get(timer) == order:
                self.now_ms = due
                del self.timers[timer]
                self.say(f"{due} ms: {' '.join(timer)} timer")
                self.perform(self.group.timer_expired(timer, self.clock()))
        self.now_ms = end

    def on_store(self, *plain, **options):
        if plain == ("waits",):
            self.holds = True
            return
        self.holds = False
        error = ErrorCode[plain[1]] if plain[0] == "fails" else ErrorCode.NONE
        waiting, self.waiting = self.waiting, []
        for store in waiting:
            self.end(store, error)

    def on_reload(self, *plain, **options):
        self.perform(self.group.unloaded(ErrorCode.NOT_COORDINATOR))
        self.timers.clear()
        if self.kept is None:
            self.group = ClassicGroup("g", self.config, self.clock())
        else:
            self.group = ClassicGroup.of("g", self.kept, self.config, self.clock())
        self.perform(self.group.loaded(self.clock()))

    def on_forget(self, *plain, **options):
        del self.ids[plain[0]]

    def clock(self):
        return START_MS + self.now_ms

    def perform(self, effects):
        for effect in effects:
            match effect:
                case Respond((_, name), result):
                    self.say(self.answer(name, result))
                case SetTimer(timer, delay_ms):
                    order = self.timers[timer] = next(self.order)
                    heapq.heappush(self.queue, (self.now_ms + delay_ms, order, timer))
                case CancelTimer(timer):
                    self.timers.pop(timer, None)
                case StoreRecords() if self.holds:
                    self.waiting.append(effect)
                case StoreRecords():
                    self.end(effect, ErrorCode.NONE)

    def end(self, store, error):
        if error:
            self.say(f"not stored: {error.name}")
        else:
            self.kept = read_group_value(store.records[0].value)
            members = " ".join(f"{one.member_id}={one.assignment.decode() or '-'}" for one in self.kept.members)
            self.say(f"stored: generation {self.kept.generation}, leader {self.kept.leader}, {members or 'nobody'}")
        self.perform(self.group.stored(store.outcome, error, self.clock()))

    def answer(self, name, result):
        if not isinstance(result, JoinResult):
            text = result.assignment.decode() or "nothing"
            return f"{name} synced: {result.error.name if result.error else text}"
        if result.member_id and result.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.ids[name] = result.member_id
        if result.error:
            return f"{name} joined: {result.error.name}{f', id {result.member_id}' if result.member_id else ''}"
        members = f", members {' '.join(one.member_id for one in result.members)}" if result.members else ""
        skips = ", skips assignment" if result.skip_assignment else ""
        return (
            f"{name} joined: {result.member_id} in generation {result.generation}, {result.protocol_name}, "
            f"leader {result.leader}{members}{skips}"
        )


def subscription(topics):
    out = Encoder(flexible=False)
    out.int16(0)
    names = topics.split(",")
    out.array_length(len(names))
    for name in names:
        out.string(name)
    return b"".join(out.parts)


test_a_classic_group_does_as_its_transcript_says = plays("classic", Stage)
