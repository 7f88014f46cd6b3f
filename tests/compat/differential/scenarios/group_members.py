"""The classic group protocol with one member and with two, and how a group's coordinator is found."""

from differential.scenario import ask, scenario

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
