"""Offsets that groups commit, fetch and delete, and lists, descriptions and deletions of classic groups."""

from uuid import UUID

from differential.scenario import ask, scenario
from differential.scenarios.group_members import group_of, join, member_of, member_of_generation, versioned

UNKNOWN_ID = UUID("6f6e6520-0000-4000-8000-6e6f20746f70")


# Offsets


def committing(session, group, topic, *partitions, member_id="", generation=-1, topic_id=None):
    """Partitions as (index, offset, metadata)."""
    asked = [
        {"partitionIndex": index, "committedOffset": offset, "committedMetadata": metadata}
        for index, offset, metadata in partitions
    ]
    if session.api == "OffsetCommit" and session.version >= 10:
        names = {"topicId": topic_id or session.topic_id(topic)}
    else:
        names = {"name": topic}
    fields = {"groupId": group, "topics": [{**names, "partitions": asked}]}
    return versioned(session, fields, memberId=(1, member_id), generationIdOrMemberEpoch=(1, generation))


def commit(session, group, topic, *partitions):
    """Commit from outside the group, without a word in the transcript."""
    asked = [
        {"partitionIndex": index, "committedOffset": offset, "committedMetadata": metadata}
        for index, offset, metadata in partitions
    ]
    answer = session.call(
        "OffsetCommit", 2, groupId=group, generationIdOrMemberEpoch=-1, memberId="",
        topics=[{"name": topic, "partitions": asked}],
    )  # fmt: skip
    assert {one["errorCode"] for one in answer["topics"][0]["partitions"]} == {0}, answer


def fetching(session, group, topics, **more):
    """Topics as name: partitions; None for all."""
    by_id = session.version >= 10
    named = topics and [
        {**({"topicId": session.topic_id(name)} if by_id else {"name": name}), "partitionIndexes": list(partitions)}
        for name, partitions in topics.items()
    ]
    topics = [] if topics == {} else named
    if session.version < 8:
        return {"groupId": group, "topics": topics, **more}
    return {"groups": [{"groupId": group, "topics": topics}], **more}


def fetch_committed(session, group, topic, *partitions):
    """Put down what is committed."""
    asked = [{"name": topic, "partitionIndexes": list(partitions)}]
    session.ask(api="OffsetFetch", version=5, groupId=group, topics=asked)


@scenario("OffsetCommit", "from outside a group", first=1)
def commit_simply(session):
    """With metadata, null metadata, to an unknown partition, a negative offset; and once more."""
    group, topic = group_of(session), session.topic(partitions=3)
    session.ask(committing(session, group, topic, (0, 5, "note"), (1, 7, None), (2, 0, "")))
    session.ask(committing(session, group, topic, (0, 6, "é"), (9, 1, ""), (1, -1, "")))
    fetch_committed(session, group, topic, 0, 1, 2, 9)


@scenario("OffsetCommit", "to ZooKeeper", last=0)
def commit_to_zookeeper(session):
    """Version 0 keeps offsets in ZooKeeper, where version 0 of OffsetFetch finds them."""
    group, topic = group_of(session), session.topic()
    session.ask(committing(session, group, topic, (0, 5, "note")))
    session.ask(api="OffsetFetch", version=0, groupId=group, topics=[{"name": topic, "partitionIndexes": [0, 3]}])
    fetch_committed(session, group, topic, 0)


@scenario("OffsetCommit", "metadata that is too large", first=1)
def commit_large(session):
    group, topic = group_of(session), session.topic(partitions=2)
    session.ask(committing(session, group, topic, (0, 5, "n" * 4097), (1, 5, "n" * 4096)))
    fetch_committed(session, group, topic, 1)


@scenario("OffsetCommit", "of a member", first=1)
def commit_of_member(session):
    group, topic = group_of(session), session.topic()
    member_id, generation = member_of(session, group)
    for asked_id, asked_generation in (
        (member_id, generation), (member_id, generation + 1), ("nobody", generation), ("", -1), (member_id, -1),
    ):  # fmt: skip
        session.ask(committing(session, group, topic, (0, 3, ""), member_id=asked_id, generation=asked_generation))


@scenario("OffsetCommit", "of a static member", first=7)
def commit_of_static(session):
    group, topic = group_of(session), session.topic()
    member_id, generation = member_of(session, group, instance="one")
    for asked_id, instance in ((member_id, "one"), ("nobody", "one"), (member_id, "two")):
        asked = committing(session, group, topic, (0, 3, ""), member_id=asked_id, generation=generation)
        session.ask(asked, groupInstanceId=instance)


@scenario("OffsetCommit", "to an empty group by an unknown member", first=1)
def commit_of_nobody(session):
    topic = session.topic()
    session.ask(committing(session, group_of(session), topic, (0, 3, ""), member_id="nobody", generation=3))


@scenario("OffsetCommit", "leader epochs", first=6)
def commit_epochs(session):
    group, topic = group_of(session), session.topic()
    asked = committing(session, group, topic, (0, 5, ""))
    asked["topics"][0]["partitions"][0]["committedLeaderEpoch"] = 4
    session.ask(asked)
    fetch_committed(session, group, topic, 0)


ask("OffsetCommit", "unknown topic", lambda s: committing(s, "g", "nowhere", (0, 1, "")), first=1, last=9)
ask("OffsetCommit", "unknown id", lambda s: committing(s, "g", "", (0, 1, ""), topic_id=UNKNOWN_ID), first=10)
ask("OffsetCommit", "an empty group name", lambda s: committing(s, "", s.shared_topic(records=0), (0, 1, "")), first=1)
ask("OffsetCommit", "no topics", lambda s: versioned(s, {"groupId": "g", "topics": []}), first=1)


@scenario("OffsetFetch", "of some and of all", first=1)
def fetch_some(session):
    group, topic, other = group_of(session), session.topic("a", partitions=2), session.topic("b")
    session.topic_id(topic)
    session.topic_id(other)
    commit(session, group, topic, (0, 5, "note"))
    commit(session, group, other, (0, 9, ""))
    session.ask(fetching(session, group, {topic: (0, 1, 7)}))
    session.ask(fetching(session, group, {}))
    if session.version >= 2:
        session.ask(fetching(session, group, None))
    if session.version >= 7:
        session.ask(fetching(session, group, {topic: (0,)}, requireStable=True))


ask("OffsetFetch", "unknown group", lambda s: fetching(s, "no-such-group", {s.shared_topic(records=0): (0,)}), first=1)
ask("OffsetFetch", "all of an unknown group", lambda s: fetching(s, "no-such-group", None), first=2)
ask("OffsetFetch", "an empty group name", lambda s: fetching(s, "", {s.shared_topic(records=0): (0,)}), first=1)
ask("OffsetFetch", "unknown topic", lambda s: fetching(s, "no-such-group", {"nowhere": (0,)}), first=1, last=9)


@scenario("OffsetFetch", "several groups", first=8)
def fetch_groups(session):
    topic, group = session.topic(), group_of(session)
    session.topic_id(topic)
    commit(session, group, topic, (0, 5, "note"))
    one, two = (fetching(session, name, {topic: (0,)})["groups"][0] for name in (group, "no-such-group"))
    session.ask(groups=[one, two])


@scenario("OffsetFetch", "of a member and its epoch", first=9)
def fetch_of_member(session):
    """A classic group has no member epochs to check."""
    topic, group = session.topic(), group_of(session)
    commit(session, group, topic, (0, 5, "note"))
    asked = fetching(session, group, {topic: (0,)})
    asked["groups"][0] |= {"memberId": "nobody", "memberEpoch": 3}
    session.ask(asked)


@scenario("OffsetDelete", "of an empty group")
def delete_offsets(session):
    group, topic = group_of(session), session.topic(partitions=2)
    commit(session, group, topic, (0, 5, ""), (1, 6, ""))
    for partitions in ([0], [0, 9], []):
        session.ask(groupId=group, topics=[{"name": topic, "partitions": [{"partitionIndex": p} for p in partitions]}])
    fetch_committed(session, group, topic, 0, 1)


@scenario("OffsetDelete", "of a group with members")
def delete_offsets_of_members(session):
    """A group of consumers keeps the offsets of what it subscribes to; another kind keeps them all."""
    topic, other = session.topic("a"), session.topic("b")
    metadata = b"\x00\x01" + session.side.messages.encode("ConsumerProtocolSubscription", 1, {"topics": [topic]})
    for kind in ("consumer", "connect"):
        group = f"{group_of(session)}-{kind}"
        commit(session, group, topic, (0, 5, ""))
        commit(session, group, other, (0, 5, ""))
        member_of(session.another(), group, protocols=(("range", metadata),), protocol_type=kind)
        asked = [{"name": name, "partitions": [{"partitionIndex": 0}]} for name in (topic, other)]
        session.ask(groupId=group, topics=asked)


NO_TOPICS_TO_DELETE = [{"name": "nowhere", "partitions": [{"partitionIndex": 0}]}]
ask("OffsetDelete", "unknown group", {"groupId": "no-such-group", "topics": NO_TOPICS_TO_DELETE})
ask("OffsetDelete", "an empty group name", {"groupId": "", "topics": NO_TOPICS_TO_DELETE})


@scenario("OffsetDelete", "unknown topic")
def delete_unknown_offsets(session):
    group, topic = group_of(session), session.shared_topic(records=0)
    commit(session, group, topic, (0, 5, ""))
    session.ask(groupId=group, topics=NO_TOPICS_TO_DELETE)


# ListGroups, DescribeGroups, DeleteGroups


def only_group(*groups):
    return lambda answer: {**answer, "groups": [one for one in answer["groups"] if one["groupId"] in groups]}


@scenario("ListGroups", "one with a member and one with offsets alone")
def list_groups(session):
    group, simple = group_of(session), f"{group_of(session)}-simple"
    member_of(session, group)
    commit(session, simple, session.shared_topic(records=0), (0, 1, ""))
    keep = only_group(group, simple)
    session.ask({}, keep=keep)
    if session.version >= 4:
        for states in (["Stable"], ["Empty"], ["stable"], ["Dead"], ["NoSuchState"], ["Stable", "Empty"]):
            session.ask({"statesFilter": states}, keep=keep)
    if session.version >= 5:
        for types in (["classic"], ["consumer"], ["Classic"], ["nonsense"]):
            session.ask({"typesFilter": types}, keep=keep)


def without_client_host(answer):
    for group in answer["groups"]:
        for member in group["members"]:
            member["clientHost"] = bool(member["clientHost"])
    return answer


@scenario("DescribeGroups", "through its life")
def describe_group(session):
    """Before, with offsets alone, joined, stable, empty again."""
    group = group_of(session)
    asked = {"groups": [group]}
    session.ask(asked)
    commit(session, group, session.shared_topic(records=0), (0, 1, ""))
    session.ask(asked, keep=without_client_host)
    member = join(session, group)
    session.ask(asked, keep=without_client_host)
    member_of_generation(session, group, member)
    session.ask(asked, keep=without_client_host)
    session.call("LeaveGroup", 0, groupId=group, memberId=member["memberId"])
    session.ask(asked, keep=without_client_host)


@scenario("DescribeGroups", "several, with operations", first=3)
def describe_several(session):
    group = group_of(session)
    member_of(session, group, instance="one")
    session.ask(
        {"groups": [group, "no-such-group", "", group], "includeAuthorizedOperations": True}, keep=without_client_host
    )


ask("DescribeGroups", "none", {"groups": []})
ask("DescribeGroups", "an empty name", {"groups": [""]})


@scenario("DeleteGroups", "empty, with a member, unknown")
def delete_groups(session):
    group, busy, topic = group_of(session), f"{group_of(session)}-busy", session.shared_topic(records=0)
    commit(session, group, topic, (0, 5, ""))
    member_of(session, busy)
    session.ask(groupsNames=[group, busy, "no-such-group", ""])
    session.ask(groupsNames=[group])
    fetch_committed(session, group, topic, 0)


ask("DeleteGroups", "none", {"groupsNames": []})
ask("DeleteGroups", "one twice", {"groupsNames": ["no-such-group", "no-such-group"]})
