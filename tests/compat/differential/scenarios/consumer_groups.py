"""The new group protocol (KIP-848): the broker assigns, members reconcile by heartbeats."""

from itertools import count
from uuid import UUID

from differential.scenario import ask, scenario
from differential.scenarios.group_members import group_of, member_of
from differential.scenarios.group_offsets_and_lists import commit, fetch_committed

HEARTBEAT_MS = {"rebalanceTimeoutMs": 30_000}
LEAVE, LEAVE_STATIC = -1, -2
NOTHING = {"topicPartitions": []}  # as where the group's coordinator is still loading
MEMBER_IDS = ("b3RrZXJvbmUtb25lLW9uZQ", "b3RrZXJ0d28tdHdvLXR3bw")


def beat(session, group, epoch, *, member=0, keep=None, **more):
    """One heartbeat, recorded."""
    fields = {"groupId": group, "memberId": MEMBER_IDS[member], "memberEpoch": epoch, **more}
    return session.ask(fields, api="ConsumerGroupHeartbeat", version=beat_version(session), keep=keep)


def beat_version(session):
    return session.version if session.api == "ConsumerGroupHeartbeat" else 0


def first_beat(session, group, *topics, member=0, **more):
    for topic in topics:
        await_in_coordinator(session, topic)
    return beat(
        session, group, 0, member=member, subscribedTopicNames=list(topics), topicPartitions=[], **HEARTBEAT_MS, **more
    )


def await_in_coordinator(session, topic):
    """A coordinator learns of a topic a little after the broker: ask as members of other groups till it assigns it."""
    topic_id = session.topic_id(topic)
    attempts = count()
    session.until(
        lambda: session.call(
            "ConsumerGroupHeartbeat", 0, groupId=f"probe-{topic}-{next(attempts)}", memberId=MEMBER_IDS[0],
            memberEpoch=0, subscribedTopicNames=[topic], topicPartitions=[], **HEARTBEAT_MS,
        ),
        lambda answer: topic_id in [one["topicId"] for one in (answer["assignment"] or NOTHING)["topicPartitions"]],
    )  # fmt: skip


def owned(session, topic, partitions):
    return [{"topicId": session.topic_id(topic), "partitions": partitions}]


@scenario("ConsumerGroupHeartbeat", "a member's life")
def life(session):
    """Joins, is given all, owns it, beats, repeats an old epoch, claims a future one, leaves, is gone."""
    group, topic = group_of(session), session.topic(partitions=3)
    answer = first_beat(session, group, topic)
    epoch = answer["memberEpoch"]
    beat(session, group, epoch, topicPartitions=owned(session, topic, [0, 1, 2]))
    beat(session, group, epoch)
    beat(session, group, epoch - 1)
    beat(session, group, epoch + 5)
    beat(session, group, LEAVE)
    beat(session, group, epoch)


@scenario("ConsumerGroupHeartbeat", "two members share")
def share(session):
    """The second member gets its partitions only after the first has given them up."""
    group, topic = group_of(session), session.topic(partitions=4)
    epoch = first_beat(session, group, topic)["memberEpoch"]
    beat(session, group, epoch, topicPartitions=owned(session, topic, [0, 1, 2, 3]))
    second = first_beat(session, group, topic, member=1)
    told = beat(session, group, epoch, keep=counted)
    kept = told["assignment"]["topicPartitions"][0]["partitions"]
    beat(session, group, epoch, topicPartitions=owned(session, topic, kept), keep=counted)
    beat(session, group, second["memberEpoch"], member=1, topicPartitions=[], keep=counted)


def counted(answer):
    """Keeps how many partitions are assigned: which ones is the assignor's choice."""
    assignment = answer["assignment"]
    if assignment:
        counts = [len(one["partitions"]) for one in assignment["topicPartitions"]]
        answer = {**answer, "assignment": counts}
    return answer


@scenario("ConsumerGroupHeartbeat", "a new subscription")
def resubscribe(session):
    group, topic, other = group_of(session), session.topic("a", partitions=2), session.topic("b")
    epoch = first_beat(session, group, topic)["memberEpoch"]
    beat(session, group, epoch, topicPartitions=owned(session, topic, [0, 1]))
    await_in_coordinator(session, other)
    beat(session, group, epoch, subscribedTopicNames=[topic, other])


@scenario("ConsumerGroupHeartbeat", "a topic that is not there")
def subscribe_to_nothing(session):
    beat(session, group_of(session), 0, subscribedTopicNames=["nowhere"], topicPartitions=[], **HEARTBEAT_MS)


@scenario("ConsumerGroupHeartbeat", "each assignor")
def assignors(session):
    topic = session.topic(partitions=2)
    for name in ("uniform", "range", "no-such-assignor", ""):
        first_beat(session, f"{group_of(session)}-{name}", topic, serverAssignor=name)


@scenario("ConsumerGroupHeartbeat", "a static member that comes back")
def static_member(session):
    group, topic = group_of(session), session.topic(partitions=2)
    epoch = first_beat(session, group, topic, instanceId="one")["memberEpoch"]
    beat(session, group, epoch, instanceId="one", topicPartitions=owned(session, topic, [0, 1]))
    first_beat(session, group, topic, member=1, instanceId="one")
    beat(session, group, LEAVE_STATIC, instanceId="one")
    first_beat(session, group, topic, member=1, instanceId="one")
    beat(session, group, epoch, instanceId="one")


@scenario("ConsumerGroupHeartbeat", "a pattern", first=1)
def pattern(session):
    group, topic = group_of(session), session.topic(partitions=2)
    session.topic_id(topic)
    for expression in (topic, "(", ""):
        beat(session, f"{group}-{len(expression)}", 0, subscribedTopicRegex=expression, topicPartitions=[],
             keep=without_assignment, **HEARTBEAT_MS)  # fmt: skip


def without_assignment(answer):
    """A pattern is looked up behind the answer: it may name the topics now or with a later one."""
    return {**answer, "assignment": None, "memberEpoch": answer["memberEpoch"] > 0}


@scenario("ConsumerGroupHeartbeat", "without a member id")
def without_member_id(session):
    """Given one by the broker in version 0, refused from version 1 on."""
    session.ask(
        {"groupId": group_of(session), "memberId": "", "memberEpoch": 0, "subscribedTopicNames": ["a"],
         "topicPartitions": [], **HEARTBEAT_MS},
        keep=lambda answer: {**answer, "memberId": bool(answer["memberId"])},
    )  # fmt: skip


def refused(name, **fields):
    """A first heartbeat with something wrong about it."""
    base = {"memberId": MEMBER_IDS[0], "memberEpoch": 0, "subscribedTopicNames": ["a"], "topicPartitions": []}
    scenario("ConsumerGroupHeartbeat", name)(
        lambda session: session.ask({"groupId": group_of(session), **base, **HEARTBEAT_MS, **fields})
    )


refused("an empty group name", groupId="")
refused("a group name of spaces", groupId="  ")
refused("no rebalance timeout", rebalanceTimeoutMs=-1)
refused("no subscription", subscribedTopicNames=None)
refused("no partitions", topicPartitions=None)
refused("partitions from the start", topicPartitions=[{"topicId": UUID(int=5), "partitions": [0]}])
refused("an empty instance id", instanceId="")
refused("an empty rack", rackId="")
refused("an epoch in an unknown group", memberEpoch=3)
refused("a leave from an unknown group", memberEpoch=LEAVE)
refused("an epoch that is none", memberEpoch=-3)
refused("a static leave without an instance", memberEpoch=LEAVE_STATIC)


@scenario("ConsumerGroupHeartbeat", "in a group of the classic protocol")
def in_classic_group(session):
    group = group_of(session)
    member_of(session, group, protocols=(("range", b""),))
    beat(session.another(), group, 0, subscribedTopicNames=["a"], topicPartitions=[], **HEARTBEAT_MS)


def without_hosts(answer):
    for group in answer["groups"]:
        for member in group["members"]:
            member["clientHost"] = bool(member["clientHost"])
    return answer


@scenario("ConsumerGroupDescribe", "through its life")
def describe(session):
    group, topic = group_of(session), session.topic(partitions=2)
    epoch = first_beat(session, group, topic)["memberEpoch"]
    asked = {"groupIds": [group], "includeAuthorizedOperations": True}
    session.ask(asked, keep=without_hosts)
    beat(session, group, epoch, topicPartitions=owned(session, topic, [0, 1]))
    session.ask(asked, keep=without_hosts)
    beat(session, group, LEAVE)
    session.ask(asked, keep=without_hosts)


@scenario("ConsumerGroupDescribe", "a classic group")
def describe_classic(session):
    group = group_of(session)
    member_of(session, group)
    session.ask(groupIds=[group, "no-such-group", ""])


@scenario("ConsumerGroupDescribe", "a consumer group in the words of the classic protocol")
def describe_in_classic_words(session):
    group, topic = group_of(session), session.topic(partitions=2)
    epoch = first_beat(session, group, topic)["memberEpoch"]
    for version in (0, 5):
        session.ask(api="DescribeGroups", version=version, groups=[group])
    session.ask(api="ListGroups", version=5, typesFilter=["consumer"], keep=lambda answer: [
        one for one in answer["groups"] if one["groupId"] == group
    ])  # fmt: skip
    session.ask(api="DeleteGroups", version=1, groupsNames=[group])
    beat(session, group, epoch, topicPartitions=owned(session, topic, [0, 1]))
    commit_as_member(session, group, topic, epoch)


def commit_as_member(session, group, topic, epoch):
    """Offsets by the member's epoch: the right one, an old one, another member's."""
    for asked_epoch, member_id in ((epoch, MEMBER_IDS[0]), (epoch - 1, MEMBER_IDS[0]), (epoch, "nobody"), (-1, "")):
        asked = [{"name": topic, "partitions": [{"partitionIndex": 0, "committedOffset": 4, "committedMetadata": ""}]}]
        session.ask(
            api="OffsetCommit", version=9, groupId=group, generationIdOrMemberEpoch=asked_epoch, memberId=member_id,
            topics=asked,
        )  # fmt: skip
    fetch_committed(session, group, topic, 0)


@scenario("ConsumerGroupDescribe", "a group of offsets alone that becomes one of consumers")
def upgrade(session):
    group, topic = group_of(session), session.topic()
    commit(session, group, topic, (0, 3, "kept"))
    first_beat(session, group, topic)
    fetch_committed(session, group, topic, 0)
    session.ask({"groupIds": [group]}, keep=without_hosts)


ask("ConsumerGroupDescribe", "none", {"groupIds": []})
