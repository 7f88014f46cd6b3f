"""The classic group protocol and committed offsets, with one member and with two."""

from uuid import UUID

from differential.scenario import ask, scenario

UNKNOWN_ID = UUID("6f6e6520-0000-4000-8000-6e6f20746f70")
MEMBER_ID_REQUIRED = 79
TIMEOUTS = {"sessionTimeoutMs": 30_000, "rebalanceTimeoutMs": 30_000}
FIRST_BATCHED_LEAVE = 3
FIRST_STATIC_JOIN = 5


def versioned(session, fields, **by_first_version):
    """Fields, and those that a version must not be given before it knows them, as name=(first version, value)."""
    return {**fields, **{name: value for name, (first, value) in by_first_version.items() if session.version >= first}}


def group_of(session):
    return f"group-{session.api.lower()}-{session.name}"


# FindCoordinator


def coordinator_of(*keys, kind=0):
    def fields(session):
        asked = {"key": keys[0]} if session.version < 4 else {"coordinatorKeys": list(keys)}
        return versioned(session, asked, keyType=(1, kind))

    return fields


ask("FindCoordinator", "of a group", coordinator_of("some-group"))
ask("FindCoordinator", "of an empty name", coordinator_of(""))
ask("FindCoordinator", "of several", coordinator_of("one", "two", "one"), first=4)
ask("FindCoordinator", "of none", {"coordinatorKeys": [], "keyType": 0}, first=4)
ask("FindCoordinator", "of an unknown kind", coordinator_of("some", kind=9), first=1)
ask("FindCoordinator", "of a share group", coordinator_of("some", kind=2), first=1)


# Members


def joining(group, member_id="", *, instance=None, protocols=(("range", b"meta"),), protocol_type="consumer", **more):
    fields = {
        "groupId": group, "memberId": member_id, "protocolType": protocol_type, **TIMEOUTS,
        "protocols": [{"name": name, "metadata": metadata} for name, metadata in protocols],
    }  # fmt: skip
    return {**fields, **({"groupInstanceId": instance} if instance else {}), **more}


def join(session, group, **options):
    """Join as the version wants it, recorded; the last answer."""
    answer = session.ask(joining(group, **options), api="JoinGroup", version=join_version(session))
    if answer["errorCode"] == MEMBER_ID_REQUIRED:
        answer = session.ask(
            joining(group, answer["memberId"], **options), api="JoinGroup", version=join_version(session)
        )
    return answer


def join_version(session):
    return session.version if session.api == "JoinGroup" else 5


def member_of(session, group, **options):
    """A member of a stable group, without a word in the transcript: (member id, generation)."""
    answer = session.call("JoinGroup", 5, **joining(group, **options))
    if answer["errorCode"] == MEMBER_ID_REQUIRED:
        answer = session.call("JoinGroup", 5, **joining(group, answer["memberId"], **options))
    assert answer["errorCode"] == 0, answer
    member_of_generation(session, group, answer)
    return answer["memberId"], answer["generationId"]


# JoinGroup


@scenario("JoinGroup", "the first member, twice")
def join_twice(session):
    group = group_of(session)
    answer = join(session, group)
    session.ask(joining(group, answer["memberId"]))


@scenario("JoinGroup", "two members")
def join_two(session):
    """The join of the second member waits until the first, which leads both, joins again."""
    group = group_of(session)
    first = join(session, group)
    member_of_generation(session, group, first)
    other = session.another()
    if session.version >= 4:
        asked = other.ask(joining(group))
        waiting = other.send(joining(group, asked["memberId"]))
    else:
        waiting = other.send(joining(group))
    session.until(lambda: heartbeat(session, group, first), lambda answer: answer["errorCode"] == 27)
    again = session.call("JoinGroup", session.version, **joining(group, first["memberId"]))
    second = other._wire.receive(waiting)
    session.note(in_order(again))
    session.note(in_order(second))


def in_order(answer):
    return {**answer, "members": len(answer["members"])}


def heartbeat(session, group, member):
    return session.call("Heartbeat", 0, groupId=group, generationId=member["generationId"], memberId=member["memberId"])


def member_of_generation(session, group, member):
    """The leader's assignment to itself, which makes the group stable."""
    assigned = [{"memberId": member["memberId"], "assignment": b"a"}]
    answer = session.call(
        "SyncGroup", 0, groupId=group, generationId=member["generationId"], memberId=member["memberId"],
        assignments=assigned,
    )  # fmt: skip
    assert answer["errorCode"] == 0, answer


@scenario("JoinGroup", "protocols that do not go together")
def join_inconsistent(session):
    group = group_of(session)
    join(session, group, protocols=(("range", b""),))
    session.ask(joining(group, protocols=(("roundrobin", b""),)))
    session.ask(joining(group, protocol_type="connect"))


@scenario("JoinGroup", "the protocol of the leader's choice")
def join_preference(session):
    join(session, group_of(session), protocols=(("sticky", b"1"), ("range", b"2")))


@scenario("JoinGroup", "a static member, and again", first=FIRST_STATIC_JOIN)
def join_static(session):
    group = group_of(session)
    first = join(session, group, instance="one")
    member_of_generation(session, group, first)
    session.ask(joining(group, instance="one"))
    session.ask(joining(group, first["memberId"], instance="one"))


def join_alone(name, *, first=0, **options):
    scenario("JoinGroup", name, first=first)(lambda session: session.ask(joining(group_of(session), **options)))


join_alone("no protocols", protocols=())
join_alone("no protocol type", protocol_type="")
join_alone("an unknown member", member_id="nobody")
join_alone("a session timeout too short", sessionTimeoutMs=1)
join_alone("a session timeout too long", sessionTimeoutMs=10_000_000)
join_alone("an unknown static member", member_id="nobody", instance="two", first=FIRST_STATIC_JOIN)
ask("JoinGroup", "an empty group name", joining(""))


# SyncGroup, Heartbeat, LeaveGroup


def syncing(session, group, member_id, generation, assignments=(), **names):
    fields = {
        "groupId": group, "generationId": generation, "memberId": member_id,
        "assignments": [{"memberId": member, "assignment": content} for member, content in assignments],
    }  # fmt: skip
    return versioned(session, fields, **{name: (5, value) for name, value in names.items()})


@scenario("SyncGroup", "the leader's assignment, twice")
def sync(session):
    group = group_of(session)
    member = join(session, group)
    member_id, generation = member["memberId"], member["generationId"]
    for _ in range(2):
        session.ask(syncing(session, group, member_id, generation, [(member_id, b"parts")]))
    for wrong in (generation + 1, generation - 1, -1):
        session.ask(syncing(session, group, member_id, wrong))
    session.ask(syncing(session, group, "nobody", generation))


@scenario("SyncGroup", "names of the protocol", first=5)
def sync_names(session):
    group = group_of(session)
    member = join(session, group)
    for protocol_type, name in (("connect", "range"), ("consumer", "sticky"), ("consumer", "range"), (None, None)):
        session.ask(syncing(
            session, group, member["memberId"], member["generationId"], [(member["memberId"], b"x")],
            protocolType=protocol_type, protocolName=name,
        ))  # fmt: skip


@scenario("SyncGroup", "an assignment that forgets its maker")
def sync_without_assignment(session):
    group = group_of(session)
    member = join(session, group)
    session.ask(syncing(session, group, member["memberId"], member["generationId"]))


ask("SyncGroup", "unknown group", lambda s: syncing(s, "no-such-group", "nobody", 1))
ask("SyncGroup", "an empty group name", lambda s: syncing(s, "", "nobody", 1))


@scenario("Heartbeat", "of a member")
def heartbeats(session):
    group = group_of(session)
    member_id, generation = member_of(session, group)
    for asked_id, asked_generation in (
        (member_id, generation), (member_id, generation + 1), (member_id, -1), ("nobody", generation), ("", generation),
    ):  # fmt: skip
        session.ask(groupId=group, generationId=asked_generation, memberId=asked_id)


@scenario("Heartbeat", "of a static member", first=3)
def static_heartbeats(session):
    group = group_of(session)
    member_id, generation = member_of(session, group, instance="one")
    for asked_id, instance in ((member_id, "one"), ("nobody", "one"), (member_id, "two")):
        session.ask(groupId=group, generationId=generation, memberId=asked_id, groupInstanceId=instance)


@scenario("Heartbeat", "before the assignment")
def heartbeat_early(session):
    group = group_of(session)
    member = join(session, group)
    session.ask(groupId=group, generationId=member["generationId"], memberId=member["memberId"])


ask("Heartbeat", "unknown group", {"groupId": "no-such-group", "generationId": 1, "memberId": "nobody"})
ask("Heartbeat", "an empty group name", {"groupId": "", "generationId": 1, "memberId": "nobody"})


def leaving(session, group, *members):
    """Members as (id, instance)."""
    if session.version < FIRST_BATCHED_LEAVE:
        return {"groupId": group, "memberId": members[0][0]}
    return {"groupId": group, "members": [{"memberId": one, "groupInstanceId": two} for one, two in members]}


@scenario("LeaveGroup", "twice")
def leave(session):
    group = group_of(session)
    member_id, _ = member_of(session, group)
    for _ in range(2):
        session.ask(leaving(session, group, (member_id, None)))


@scenario("LeaveGroup", "several", first=FIRST_BATCHED_LEAVE)
def leave_several(session):
    group = group_of(session)
    member_id, _ = member_of(session, group, instance="one")
    session.ask(
        leaving(session, group, ("nobody", None), ("", "two"), ("nobody", "one"), ("", "one"), (member_id, None))
    )


ask("LeaveGroup", "unknown group", lambda s: leaving(s, "no-such-group", ("nobody", None)))
ask("LeaveGroup", "an empty group name", lambda s: leaving(s, "", ("nobody", None)))
ask("LeaveGroup", "nobody", lambda s: leaving(s, "no-such-group"), first=FIRST_BATCHED_LEAVE)


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
