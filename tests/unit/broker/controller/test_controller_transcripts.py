"""Transcripts of a controller: events on lines that begin with `>`; what it tells the brokers is indented below.

    > start 1 2 3                     these brokers are registered, and the controller starts
    > up 4, > down 4, > bounce 4      a broker comes, goes, or has started again before the controller saw it go
    > moves 4                         a broker changes its endpoints without a restart
    > topic t 1,2,3 2,3,1             a topic is created, with the replicas of each partition
    > partitions t 1,2,3 2,3,1 3,1,2  a topic gets partitions
    > adopt t 2@105:2,1,3             a topic is adopted: of each partition the leader, its epoch, and the replicas
    > delete t                        someone asks for a topic's deletion
    > isr t-0 1,2                     the leader asks for these in-sync replicas; `by=2`, `epoch=3`, `version=4` lie
    > written t-0 1,2                 the leader writes them to ZooKeeper itself, with a notification
    > meddle t-0 1                    a state is written by others, without a notification
    > shutdown 1                      a broker announces that it stops; `epoch=9` lies
    > prefer t-0 t-1                  a tool asks for the election of preferred replicas
    > elect t-0, > elect unclean t-0  a client asks for an election, and what it comes to
    > rebalance                       the leaders' balance is checked
    > move t-0=4,5 t-1=2,3            a tool writes a reassignment
    > cancel t-0                      a client cancels one
    > config t unclean                replicas of a topic may be elected that are not in sync; `min=2` sets its min ISR
    > answer 1 deleted                a broker has done what StopReplica asked for; `failed` says that it could not,
                                      `refused` that it did nothing, `failed=t-0` what alone it could not, and
                                      `epoch=1` that it was an earlier registration of the broker
    > pause                           the pause has ended after which the controller asks again for failed deletions
    > disk 1 t-0                      a broker has lost the data directory of a replica, or without one has all again
    > asks 1                          it asks for its roles, and then `takes 1`, or `took 1` them before, and the
                                      response was lost; `disk 1` is `asks 1` and `takes 1` in one
    > ids 1                           a broker asks for a block of producer ids
    > another                         another broker becomes the controller
    > restart 2 3                     this one becomes the controller again, and starts; so have these brokers before,
                                      and `without=1,4` is gone
    > wiped 2                         this broker begins with a new disk, before it comes or has started again; but
                                      `kept=t-0,t-1` are on another
    > powerless 2                     the machine of this broker loses its power, before it comes or has started again
    > here 2                          it has registered then
    > damaged 2 t-0 t-1               these logs of a broker are damaged, or none; `reported` the same, but the
                                      controller has not heard of it yet
    > silent 2                        this broker registers without a word on losses from now on, as Apache Kafka's do

With `set min_isr=2` that is the default of each broker; without it, no broker tells of its losses.

Partitions without a change in an event are not told of below it. The last lines of each event are the states of the
partitions that have changed.
"""

import json
import re
from uuid import UUID

from millrace.addresses import plaintext_endpoint
from millrace.errors import ErrorCode, NotControllerError
from millrace.zk import codec, paths
from millrace.zk.eligibility import NO_ONE, decode_eligibility
from millrace.zk.operations import Create, Delete, Refused
from millrace_broker.cluster.loss_reports import confirm_losses, write_damage, write_losses
from millrace_broker.cluster.metadata_image import PartitionInfo, TopicIdPartition, TopicInfo
from millrace_broker.cluster.store import Losses
from millrace_broker.cluster.zookeeper_store import adopted_states
from millrace_broker.controller.active_controller import ActiveController, ControllerConfig
from millrace_broker.controller.claims import claim_controller
from millrace_broker.controller.cluster_state import LeaderAndIsr
from millrace_broker.controller.control_requests import (
    BrokerResponse,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from millrace_broker.controller.controller_store import ControllerStore
from millrace_broker.controller.elections import IsrProposal
from millrace_broker.metrics import ElectionCounts
from millrace_broker.storage import TopicPartition
from millrace_support import transcripts
from millrace_support.model_zookeeper import ModelSession, ModelZooKeeper
from millrace_support.transcripts import plays

CONTROLLER = 1
NOW_MS = 1_700_000_000_000


def ids(text):
    return tuple(map(int, text.split(",")))


def shown(brokers):
    return ",".join(map(str, brokers)) or "none"


def partition(text):
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def listing(*entries):
    """Returns a node that lists partitions, as Kafka's tools and brokers write it."""
    return json.dumps({"version": 1, "partitions": entries}).encode()


def role(topic, state):
    moved = [
        f"{word} {shown(state[name])}"
        for word, name in (("adding", "adding_replicas"), ("removing", "removing_replicas"))
        if state[name]
    ]
    flags = [*moved, *(["new"] if state["is_new"] else []), *(["recovering"] if state["leader_recovery_state"] else [])]
    isr = f"isr {shown(state['isr'])} of {shown(state['replicas'])}"
    facts = f"leader {state['leader']}, epoch {state['leader_epoch']}, {isr}"
    return f"{topic}-{state['partition_index']} ({', '.join([facts, *flags])})"


def metadata(topic, state):
    offline = f", offline {shown(state['offline_replicas'])}" if state["offline_replicas"] else ""
    return f"{topic}-{state['partition_index']} (leader {state['leader']}{offline})"


def stop(topic, state):
    delete = ", delete" if state["delete_partition"] else ""
    return f"{topic}-{state['partition_index']} (epoch {state['leader_epoch']}{delete})"


def asked(request):
    """Returns the partitions that a request names."""
    return [
        TopicPartition(topic["topic_name"], state["partition_index"])
        for topic in request.fields["topic_states"]
        for state in topic["partition_states"]
    ]


def told(request):
    one = {LeaderAndIsrRequest: role, UpdateMetadataRequest: metadata, StopReplicaRequest: stop}[type(request)]
    topics = request.fields["topic_states"]
    lines = [one(topic["topic_name"], state) for topic in topics for state in topic["partition_states"]]
    if isinstance(request, UpdateMetadataRequest):
        lines = [f"brokers {shown(each['id'] for each in request.fields['live_brokers'])}", *lines]
    return f"{type(request).__name__.removesuffix('Request')} {' '.join(lines)}"


class Channels:
    def __init__(self):
        self.open_to = {}
        self.sent = []
        self.round, self.last = 0, 0

    def open(self, broker):
        assert broker.id not in self.open_to
        self.open_to[broker.id] = broker.epoch

    def close(self, broker):
        del self.open_to[broker]

    def send(self, broker, requests):
        self.round += broker <= self.last  # what is sent together goes to one broker after the other
        self.last = broker
        for request in requests:
            assert request.fields["broker_epoch"] == self.open_to[broker]
            self.sent.append((self.round, broker, request))


class Stage(transcripts.Stage):
    """Plays one transcript."""

    OPTION = re.compile(r"(by|epoch|version|without|kept|min|failed)=")  # `move t-0=4,5` has none

    def __init__(self, settings):
        super().__init__()
        self.config = ControllerConfig(deletes_topics=settings.get("delete") != "off")
        self.zookeeper = ModelZooKeeper()
        self.session = ModelSession(self.zookeeper, CONTROLLER)
        self.stops = []
        self.topics = 0
        self.min_isr = int(settings["min_isr"]) if "min_isr" in settings else None
        self.silent = set()

    def happen(self, event, plain, options):
        before = dict(self.active.cluster.leaders) if event != "start" else {}
        try:
            super().happen(event, plain, options)
        except NotControllerError:
            self.say("not the controller any more")
        self.tell()
        for key, state in sorted(self.active.cluster.leaders.items()):
            if before.get(key) != state and event != "another":
                (node,) = self.session.nodes([paths.partition_state(*key)])
                assert node.version == state.partition_epoch
                beside = state.eligibility
                written = self.eligibility(key, state)
                assert beside in [written, written._replace(eligible=(), configs={})]  # once it is outdated
                others = {"eligible": beside.eligible, "doubtful": beside.doubtful, "empty": beside.empty}
                told = "".join(f", {name} {shown(ids)}" for name, ids in others.items() if ids)
                self.say(f"[{key} leader {state.leader}, epoch {state.leader_epoch}, isr {shown(state.isr)}{told}]")
        for key in sorted(before.keys() - self.active.cluster.leaders.keys()):
            assert self.session.tree(paths.topic(key.topic)) == []
            self.say(f"[{key} is gone]")

    def eligibility(self, key, state):
        """Returns what the node beside a partition's state says; without the node nobody is eligible."""
        data = self.session.get(paths.eligible(*key))
        return NO_ONE if data is None else decode_eligibility(data, state.partition_epoch)

    def tell(self):
        """Writes each request once, with all brokers that get it together; they come in their order."""
        sent, self.channels.sent = self.channels.sent, []
        brokers = {}
        for sent_round, broker, request in sent:
            brokers.setdefault((sent_round, told(request)), []).append(broker)
            if isinstance(request, StopReplicaRequest):
                self.stops.append((broker, request))
        for (_, text), receivers in brokers.items():
            self.say(f"{shown(receivers)} <- {text}")

    def register(self, broker):
        registration = codec.BrokerRegistration(
            endpoints=(plaintext_endpoint("h", 9092),),
            rack=None,
            timestamp_ms=NOW_MS,
            min_insync_replicas=None if broker in self.silent else self.min_isr,
        )
        data = codec.encode_broker(registration)
        self.zookeeper.put(paths.broker(broker), data, session_id=100 + broker)

    def begin(self):
        claim = claim_controller(self.session, CONTROLLER, NOW_MS)
        self.channels = Channels()
        self.pauses = 0
        self.active = ActiveController(
            CONTROLLER,
            self.config,
            ControllerStore(self.session, claim),
            self.channels,
            ElectionCounts(),
            self.begin_pause,
        )
        self.active.start()

    def on_start(self, *brokers):
        for broker in brokers:
            self.register(int(broker))
        self.begin()

    def on_another(self):
        self.session.multi([Delete(paths.CONTROLLER)])
        claim_controller(ModelSession(self.zookeeper, 2), 2, NOW_MS)

    def on_wiped(self, broker, kept=""):
        partitions = frozenset(partition(name) for name in kept.split(",") if name)
        write_losses(self.session, int(broker), Losses(has_new_disk=True, kept=partitions))

    def on_powerless(self, broker):
        write_losses(self.session, int(broker), Losses(has_lost_power=True))

    def on_here(self, broker):
        (node,) = self.session.nodes([paths.broker(int(broker))])
        confirm_losses(self.session, int(broker), node.created_zxid)

    def on_damaged(self, broker, *names):
        write_damage(self.session, int(broker), [partition(name) for name in names])
        self.active.read_damage()

    def on_reported(self, broker, *names):
        write_damage(self.session, int(broker), [partition(name) for name in names])

    def on_silent(self, broker):
        self.silent.add(int(broker))

    def on_restart(self, *bounced, without=None):
        if self.session.exists(paths.CONTROLLER):
            self.session.multi([Delete(paths.CONTROLLER)])
        for broker in bounced:
            self.zookeeper.delete(paths.broker(int(broker)))
            self.register(int(broker))
        for broker in ids(without) if without else ():
            self.zookeeper.delete(paths.broker(broker))
        self.begin()

    def on_up(self, *brokers):
        for broker in brokers:
            self.register(int(broker))
        self.active.read_brokers()

    def on_down(self, *brokers):
        for broker in brokers:
            self.zookeeper.delete(paths.broker(int(broker)))
        self.active.read_brokers()

    def on_moves(self, broker):
        path = paths.broker(int(broker))
        self.zookeeper.put(path, self.zookeeper.nodes[path].data.replace(b"9092", b"9192"))
        self.active.read_brokers()

    def on_bounce(self, broker):
        self.zookeeper.delete(paths.broker(int(broker)))
        self.on_up(broker)

    def write_topic(self, name, replicas):
        (node,) = self.session.nodes([paths.topic(name)])
        self.topics += node is None
        topic_id = UUID(int=self.topics) if node is None else codec.decode_topic(node.data).topic_id
        assignment = codec.TopicAssignment(topic_id=topic_id, replicas=tuple(map(ids, replicas)))
        self.zookeeper.put(paths.topic(name), codec.encode_topic(assignment))

    def on_unheard(self, broker):
        """A broker registers again, and the controller does not hear of it yet."""
        self.zookeeper.delete(paths.broker(int(broker)))
        self.register(int(broker))

    def on_topic(self, name, *replicas):
        self.write_topic(name, replicas)
        self.active.read_topics()

    on_partitions = on_topic

    def on_adopt(self, name, *words):
        self.topics += 1
        self.session.ensure(paths.TOPICS)
        partitions = [
            PartitionInfo(index, int(leader), int(epoch), ids(replicas), (int(leader),))
            for index, word in enumerate(words)
            for leader, epoch, replicas in [re.split("[@:]", word)]
        ]
        topic = TopicInfo(name, UUID(int=self.topics), tuple(partitions), {})
        assignment = codec.TopicAssignment(
            topic_id=topic.topic_id, replicas=tuple(one.replicas for one in topic.partitions)
        )
        (controller_epoch,) = self.session.nodes([paths.CONTROLLER_EPOCH])
        creation = Create(paths.topic(name), codec.encode_topic(assignment))
        assert not isinstance(self.session.multi([creation, *adopted_states(topic, controller_epoch)]), Refused)
        self.active.read_topics()

    def on_delete(self, *names):
        for name in names:
            self.zookeeper.put(paths.delete_topic(name), b"")
        self.active.read_deletions()
        left = self.session.children(paths.DELETE_TOPICS)
        self.say(f"requests left: {' '.join(left) or 'none'}")

    def on_isr(self, name, isr, by=None, epoch=None, version=None):
        key = partition(name)
        state = self.active.cluster.leaders.get(key, LeaderAndIsr(1, 0, ()))
        leader = state.leader if by is None else int(by)
        proposal = IsrProposal(
            leader,
            state.leader_epoch if epoch is None else int(epoch),
            state.partition_epoch if version is None else int(version),
            dict.fromkeys(ids(isr), -1),
            0,
        )
        broker_epoch = self.active.cluster.brokers[leader].epoch
        topic = self.active.cluster.topics.get(key.topic)
        asked = TopicIdPartition(UUID(int=99) if topic is None else topic.topic_id, key.partition)
        outcome = self.active.alter_partitions(leader, broker_epoch, {asked: proposal})[asked]
        self.say(
            outcome.name if isinstance(outcome, ErrorCode) else f"accepted in partition epoch {outcome.partition_epoch}"
        )

    def write_isr(self, key, isr):
        (node,) = self.session.nodes([paths.partition_state(*key)])
        fields = codec.decode_partition_state(node.data)
        state = codec.PartitionState(leader=fields.leader, leader_epoch=fields.leader_epoch, isr=ids(isr))
        self.zookeeper.put(paths.partition_state(*key), codec.encode_partition_state(state))

    def on_written(self, name, isr):
        key = partition(name)
        self.write_isr(key, isr)
        change = f"{paths.ISR_CHANGES}/isr_change_0000000000"
        self.zookeeper.put(change, listing({"topic": key.topic, "partition": key.partition}))
        self.active.read_isr_changes()
        assert not self.session.exists(change)

    def on_meddle(self, name, isr):
        self.write_isr(partition(name), isr)

    def on_shutdown(self, broker, epoch=None):
        epoch = self.active.cluster.brokers[int(broker)].epoch if epoch is None else int(epoch)
        left = self.active.shut_down(int(broker), epoch)
        self.say(left.name if isinstance(left, ErrorCode) else f"still leads {' '.join(map(str, left)) or 'nothing'}")

    def on_prefer(self, *names):
        keys = [partition(name) for name in names]
        data = listing(*({"topic": key.topic, "partition": key.partition} for key in keys))
        self.zookeeper.put(paths.PREFERRED_ELECTION, data)
        self.active.read_preferred_elections()
        assert not self.session.exists(paths.PREFERRED_ELECTION)

    def on_elect(self, *words):
        names = [word for word in words if word != "unclean"]
        outcomes = self.active.elect([partition(name) for name in names] or None, is_unclean="unclean" in words)
        self.say(" ".join(f"{key}: {code.name}" for key, code in sorted(outcomes.items())))

    def on_rebalance(self):
        self.active.rebalance_leaders()

    def on_move(self, *moves):
        targets = dict(move.split("=") for move in moves)
        moved = ((partition(name), ids(to)) for name, to in targets.items())
        data = listing(*({"topic": key.topic, "partition": key.partition, "replicas": to} for key, to in moved))
        self.zookeeper.put(paths.REASSIGNMENT, data)
        self.active.read_reassignments()
        assert not self.session.exists(paths.REASSIGNMENT)
        self.say_assignments(targets)

    def on_cancel(self, *names):
        outcomes = self.active.reassign({partition(name): None for name in names})
        self.say(" ".join(outcome.name for outcome in outcomes.values()))
        self.say_assignments(names)

    def say_assignments(self, names):
        for name in names:
            topic = codec.decode_topic(self.session.get(paths.topic(partition(name).topic)))
            index = partition(name).partition
            adding, removing = topic.adding_replicas.get(index, ()), topic.removing_replicas.get(index, ())
            self.say(f"{name} on {shown(topic.replicas[index])}, adding {shown(adding)}, removing {shown(removing)}")

    def on_config(self, name, *words, min=None):  # noqa: A002
        config = {"unclean.leader.election.enable": "true"} if words == ("unclean",) else {}
        config |= {"min.insync.replicas": min} if min else {}
        self.zookeeper.put(paths.topic_config(name), codec.encode_config(config))

    def on_answer(self, broker, word="deleted", epoch=None, failed=""):
        stops = [request for to, request in self.stops if to == int(broker)]
        self.stops = [one for one in self.stops if one[0] != int(broker)]
        epoch = self.active.cluster.brokers[int(broker)].epoch if epoch is None else int(epoch)
        for request in stops:
            error = ErrorCode.NONE if word == "deleted" else ErrorCode.KAFKA_STORAGE_ERROR
            outcomes = dict.fromkeys(asked(request), error)
            outcomes |= dict.fromkeys(map(partition, filter(None, failed.split(","))), ErrorCode.KAFKA_STORAGE_ERROR)
            whole = ErrorCode.UNKNOWN_SERVER_ERROR if word == "refused" else ErrorCode.NONE
            outcomes = {} if word == "refused" else outcomes
            self.active.answered(BrokerResponse(int(broker), epoch, request, whole, outcomes))
        left = self.session.children(paths.DELETE_TOPICS)
        self.say(f"requests left: {' '.join(left) or 'none'}")

    def on_pause(self):
        if self.pauses:
            self.pauses = 0
            self.active.delete_failed_again()

    def begin_pause(self):
        self.pauses += 1
        assert self.pauses == 1, "only one pause at a time"

    def on_disk(self, broker, *names):
        self.on_asks(broker)
        self.on_takes(broker, *names)

    def on_asks(self, broker):
        event = f"{paths.LOG_DIR_EVENTS}/log_dir_event_0000000000"
        self.zookeeper.put(event, codec.encode_log_dir_failure(int(broker)))
        self.active.read_log_dir_events()
        assert not self.session.exists(event)
        (self.roles,) = [one for *_, one in self.channels.sent if isinstance(one, LeaderAndIsrRequest)]
        self.tell()

    def on_takes(self, broker, *failed, outcome=ErrorCode.NONE):
        outcomes = dict.fromkeys(asked(self.roles), outcome)
        outcomes |= dict.fromkeys(map(partition, failed), ErrorCode.KAFKA_STORAGE_ERROR)
        epoch = self.active.cluster.brokers[int(broker)].epoch
        self.active.answered(BrokerResponse(int(broker), epoch, self.roles, 0, outcomes))

    def on_took(self, broker):
        self.on_takes(broker, outcome=ErrorCode.STALE_CONTROLLER_EPOCH)

    def on_ids(self, broker):
        block = self.active.allocate_producer_ids(int(broker), self.active.cluster.brokers[int(broker)].epoch)
        self.say(f"{block.start} to {block.stop - 1}")


test_a_transcript_is_what_happens = plays("controller", Stage)


def test_the_log_says_why_a_reassignment_waits(caplog):
    stage = Stage({})
    for event in ("start 1 2", "topic t 1,2", "damaged 1 t-0", "move t-0=1"):
        stage.play(event)
    assert "t-0 is not taken from the brokers [2] yet: its logs on the brokers [1] are damaged" in caplog.text
