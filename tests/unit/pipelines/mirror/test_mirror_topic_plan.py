"""What is done for topics of a source, by what both clusters have and by the states."""

from dataclasses import replace

import pytest

from millrace_pipelines.mirror.settings import Accept, DeletedTopics, MirrorSettings, NewTopics, Side, Source, Way
from millrace_pipelines.mirror.states import State, TopicState
from millrace_pipelines.mirror.topic_plan import (
    ChangeProperties,
    Create,
    DeleteTarget,
    Grow,
    LeaveAlone,
    Replace,
    SetState,
    Topic,
    View,
    plan,
)

SOURCE = Source(name="east", bootstrap="h:1", topics=("orders", "west\\..*", "_schemas", "__.*", "x+"))
SETTINGS = MirrorSettings(target=Side(bootstrap="h:2"), sources=(SOURCE,))
ORDERS = Topic("orders", "s1", 3, {})
AT_TARGET = Topic("east.orders", "t1", 3, {})
NEW = TopicState(
    source="east", topic="orders", target_topic="east.orders", way=Way.COPY, source_cluster_id="E",
    source_topic_id="s1",
    origins=("E",),
)  # fmt: skip
MIRRORED = replace(NEW, target_topic_id="t1", changed_ms=7)
EMPTY = View(
    source_cluster_id="E", target_cluster_id="T", source_topics={}, gone=frozenset(), target_topics={}, states={},
    source_states={}, can_follow=False,
)  # fmt: skip


def view(*source, target=(), states=(), source_states=(), **fields):
    return replace(
        EMPTY,
        source_topics={one.name: one for one in source},
        target_topics={one.name: one for one in target},
        states={one.key: one for one in states},
        source_states={one.key: one for one in source_states},
        **fields,
    )


def planned(view, source=SOURCE, **settings):
    return plan(view, source, replace(SETTINGS, **settings))


def stopped_with(actions):
    """Returns the reason with which the only topic is stopped."""
    (action,) = actions
    assert isinstance(action, SetState)
    assert action.state.state is State.STOPPED
    return action.state.reason


def left_alone_with(actions):
    (action,) = actions
    assert isinstance(action, LeaveAlone)
    return action.reason


@pytest.mark.parametrize(
    ("settings", "can_follow", "state", "properties", "from_now"),
    [
        ({}, False, NEW, {}, False),
        ({}, True, replace(NEW, way=Way.FOLLOW), {"mirror.source": "east"}, False),
        ({"way": Way.COPY}, True, NEW, {}, False),
        ({"keep_names": True}, False, replace(NEW, target_topic="orders"), {}, False),
        ({"new_topics": NewTopics.NOW}, False, NEW, {}, True),
        ({"new_topics": NewTopics.NO}, False, NEW, {}, False),  # it is there at the first start
    ],
)
def test_a_new_topic_is_created(settings, can_follow, state, properties, from_now):
    actions = planned(view(ORDERS, can_follow=can_follow), **settings)
    assert actions == [Create(state, 3, properties, from_now)]


def test_topics_that_come_later_are_left_alone_where_no_new_ones_are_mirrored():
    other = replace(MIRRORED, topic="xx", target_topic="east.xx")
    state = view(ORDERS, Topic("xx", "s1", 1, {}), target=[Topic("east.xx", "t1", 1, {})], states=[other])
    assert "topic orders is new, and new topics are not" in left_alone_with(planned(state, new_topics=NewTopics.NO))
    assert [type(one) for one in planned(state, new_topics=NewTopics.NOW)] == [Create]


def test_internal_topics_and_those_not_asked_for_are_passed_over():
    topics = [Topic(name, "s", 1, {}) for name in ("__consumer_offsets", "clicks", "orders2")]
    assert planned(view(*topics)) == []


def test_the_topic_of_a_schema_registry_keeps_its_name():
    (action,) = planned(view(Topic("_schemas", "s1", 1, {"cleanup.policy": "compact"})))
    assert action.state.target_topic == "_schemas"
    assert action.properties == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("way", "goes_along", "stays"),
    [
        (Way.COPY, {"retention.ms": "1", "cleanup.policy": "compact"}, {
            "min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime",
            "message.timestamp.after.max.ms": "1",
            "mirror.source": "other", "leader.replication.throttled.replicas": "*",
        }),
        (Way.FOLLOW, {"message.timestamp.type": "LogAppendTime", "mirror.source": "east"}, {
            "min.insync.replicas": "2", "unclean.leader.election.enable": "true",
        }),
    ],
)  # fmt: skip
def test_properties_go_along_as_the_way_allows(way, goes_along, stays):
    at_source = {**stays, **goes_along}
    found = planned(view(ORDERS._replace(properties=at_source), can_follow=True), way=way)[0].properties
    assert found == goes_along


@pytest.mark.parametrize(
    ("settings", "states", "target", "said"),
    [
        ({}, [], [AT_TARGET], "topic east.orders is at the target already and is no mirror of east/orders"),
        ({"way": Way.FOLLOW}, [], [], "the target can't be followed into: it is no Millrace of this version"),
        (
            {"keep_names": True},
            [replace(MIRRORED, source="west", target_topic="orders")],
            [Topic("orders", "t1", 1, {})],
            "orders is at the target already, mirrored from west",
        ),
    ],
)
def test_a_topic_that_cannot_be_created_is_stopped(settings, states, target, said):
    actions = planned(view(ORDERS, target=target, states=states), **settings)
    assert said in stopped_with(actions[:1])
    again = planned(view(ORDERS, target=target, states=[*states, actions[0].state]), **settings)
    assert said in left_alone_with(again[:1])


def test_a_name_that_would_be_too_long_stops_the_topic():
    assert "has 250 characters" in stopped_with(planned(view(Topic("x" * 245, "s", 1, {}))))


def test_what_has_passed_stops_a_topic_no_longer():
    stopped = planned(view(ORDERS, target=[AT_TARGET]))[0].state
    assert planned(view(ORDERS, states=[stopped])) == [Create(NEW, 3, {})]
    assert planned(view(ORDERS, states=[stopped]), new_topics=NewTopics.NOW) == [Create(NEW, 3, {}, from_now=True)]
    stopped = MIRRORED.stopped("it had too many partitions", may_pass=True)
    assert planned(view(ORDERS, target=[AT_TARGET], states=[stopped])) == [SetState(MIRRORED)]


def test_a_topic_that_was_followed_is_taken_up_though_its_state_is_lost():
    target = AT_TARGET._replace(properties={"mirror.source": "east"})
    followed = replace(NEW, way=Way.FOLLOW, target_topic_id="t1")
    assert planned(view(ORDERS, target=[target], can_follow=True)) == [SetState(followed)]
    another = AT_TARGET._replace(properties={"mirror.source": "north"})
    assert "no mirror of east/orders" in stopped_with(planned(view(ORDERS, target=[another], can_follow=True)))


@pytest.mark.parametrize(
    ("target", "actions"),
    [
        ([], [Create(replace(NEW, starts={0: 5}), 3, {})]),
        ([AT_TARGET], [SetState(replace(NEW, starts={0: 5}, target_topic_id="t1"))]),
    ],
)
def test_a_creation_that_was_interrupted_goes_on(target, actions):
    begun = replace(NEW, starts={0: 5})
    for new_topics in NewTopics:
        assert planned(view(ORDERS, target=target, states=[begun]), new_topics=new_topics) == actions


def test_a_topic_that_is_as_it_should_be_needs_nothing():
    assert planned(view(ORDERS, target=[AT_TARGET], states=[MIRRORED])) == []


def test_partitions_follow():
    target = AT_TARGET._replace(partitions=1)
    assert planned(view(ORDERS, target=[target], states=[MIRRORED])) == [Grow(MIRRORED, 3)]


def test_more_partitions_at_the_target_stop_the_topic():
    actions = planned(view(ORDERS, target=[AT_TARGET._replace(partitions=5)], states=[MIRRORED]))
    assert "east.orders has 5 partitions at the target, and 3 at the source" in stopped_with(actions)


def test_properties_follow():
    source = ORDERS._replace(properties={"retention.ms": "2", "segment.ms": "9", "min.insync.replicas": "2"})
    target = AT_TARGET._replace(
        properties={"retention.ms": "1", "segment.ms": "9", "max.message.bytes": "5", "min.insync.replicas": "1"}
    )
    assert planned(view(source, target=[target], states=[MIRRORED])) == [
        ChangeProperties(MIRRORED, {"retention.ms": "2"}, ("max.message.bytes",))
    ]


def test_a_followed_topic_stays_marked():
    followed = replace(MIRRORED, way=Way.FOLLOW)
    assert planned(view(ORDERS, target=[AT_TARGET], states=[followed], can_follow=True)) == [
        ChangeProperties(followed, {"mirror.source": "east"}, ())
    ]


@pytest.mark.parametrize("way", [Way.COPY, Way.FOLLOW])
def test_a_topic_that_was_created_again_at_the_source_is_stopped_unless_that_is_accepted(way):
    mirrored = replace(MIRRORED, way=way, starts={0: 4})
    properties = {"mirror.source": "east"} if way is Way.FOLLOW else {}
    target = AT_TARGET._replace(properties=properties)
    source = ORDERS._replace(topic_id="s2")

    def now(state, **settings):
        return planned(view(source, target=[target], states=[state], can_follow=True), **settings)

    said = stopped_with(now(mirrored))
    assert said.startswith(
        "topic orders was deleted and created again at the source since it was mirrored: its id is s2"
    )
    assert "A mirror with --accept-recreated-topic goes on with the new topic" in said
    stopped = now(mirrored)[0].state
    assert left_alone_with(now(stopped)) == said
    renewed = replace(mirrored, source_topic_id="s2", starts={})
    wanted = (
        [SetState(renewed)] if way is Way.COPY else [Replace(replace(renewed, target_topic_id=None), 3, properties)]
    )
    assert now(stopped, accept_recreated_topic=True) == wanted
    assert now(stopped.resumed([Accept.RECREATED_TOPIC])) == wanted
    assert left_alone_with(now(stopped.resumed([Accept.TRUNCATED_LOG]).stopped("x"))) == "x"
    assert stopped_with(now(stopped.resumed([Accept.TRUNCATED_LOG]))) == said


def test_a_topic_created_again_before_it_was_ever_mirrored_is_like_a_new_one():
    begun = replace(NEW, starts={0: 4})
    actions = planned(view(ORDERS._replace(topic_id="s2"), states=[begun]))
    assert actions == [Create(replace(NEW, source_topic_id="s2"), 3, {})]


def test_a_topic_that_is_deleted_at_the_target_is_stopped_and_created_again_once_it_is_resumed():
    state = view(ORDERS, states=[MIRRORED])
    assert "topic east.orders was deleted at the target" in stopped_with(planned(state))
    stopped = planned(state)[0].state
    assert "was deleted at the target" in left_alone_with(planned(view(ORDERS, states=[stopped])))
    (action,) = planned(view(ORDERS, states=[stopped.resumed()]))
    assert (type(action), action.state.target_topic_id) == (Create, None)


def test_another_topic_at_the_target_is_left_as_it_is():
    actions = planned(view(ORDERS, target=[AT_TARGET._replace(topic_id="t2")], states=[MIRRORED]))
    assert "is not the one that the mirror has made" in stopped_with(actions)


@pytest.mark.parametrize(
    ("gone", "deleted_topics", "target", "wanted"),
    [
        ({"orders"}, DeletedTopics.DELETE, [AT_TARGET], DeleteTarget(MIRRORED, is_there=True)),
        ({"orders"}, DeletedTopics.DELETE, [], DeleteTarget(MIRRORED, is_there=False)),
        ({"orders"}, DeletedTopics.DELETE, [AT_TARGET._replace(topic_id="t2")], DeleteTarget(MIRRORED, is_there=False)),
        ({"orders"}, DeletedTopics.KEEP, [AT_TARGET], "topic orders was deleted at the source; east.orders keeps what"),
        (set(), DeletedTopics.DELETE, [AT_TARGET], LeaveAlone(
            "east/orders", "topic orders can't be seen at the source at present"
        )),
    ],
)  # fmt: skip
def test_a_topic_that_the_source_has_no_longer(gone, deleted_topics, target, wanted):
    actions = planned(view(target=target, states=[MIRRORED], gone=frozenset(gone)), deleted_topics=deleted_topics)
    if isinstance(wanted, str):
        assert stopped_with(actions).startswith(wanted)
    else:
        assert actions == [wanted]


def test_a_topic_that_is_no_longer_asked_for_is_stopped():
    actions = planned(view(ORDERS, target=[AT_TARGET], states=[MIRRORED]), replace(SOURCE, topics_exclude=("orders",)))
    assert stopped_with(actions) == "topic orders is no longer among the topics that are asked for"


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (replace(MIRRORED, state=State.PAUSED), "it is paused"),
        (replace(MIRRORED, state=State.SWITCHING), "it is being switched over"),
        (replace(MIRRORED, state=State.SWITCHED), "it was switched over"),
        (MIRRORED.stopped("its log was cut"), "its log was cut"),
    ],
)
def test_a_topic_that_somebody_has_to_resume_is_left_alone(state, reason):
    for source in ([ORDERS], [ORDERS._replace(topic_id="s2", partitions=9)], []):
        actions = planned(
            view(*source, states=[state], gone=frozenset({"orders"})), deleted_topics=DeletedTopics.DELETE
        )
        assert actions == [LeaveAlone("east/orders", reason)]


def mirror_here(name, origins, **fields):
    """Returns the state, in the source, of a topic that is mirrored into it."""
    told = {"source": "somewhere", "topic": "orders", "target_topic": name, "way": Way.COPY, "target_topic_id": "s1"}
    return TopicState(**told | fields, origins=origins)


@pytest.mark.parametrize(
    ("origins", "is_from_here"),
    [(("T",), True), (("N", "T"), True), (("N", "M", "T"), True), (("N",), False), ((), False)],
)
def test_a_record_comes_home_never(origins, is_from_here):
    """In a pair of clusters, and in rings of three and four."""
    topic = Topic("west.orders", "s1", 1, {})
    (action,) = planned(view(topic, source_states=[mirror_here("west.orders", origins)]))
    if is_from_here:
        assert action.key == "east/west.orders"
        assert action.reason.startswith("topic west.orders comes from here")
    else:
        assert action.state.origins == ("E", *origins)


def test_a_cluster_is_not_mirrored_into_itself():
    assert "comes from here" in left_alone_with(planned(view(ORDERS, target_cluster_id="E")))


def test_a_mirrored_topic_that_begins_to_come_from_here_is_stopped():
    source_states = [mirror_here("orders", ("T",))]
    actions = planned(view(ORDERS, target=[AT_TARGET], states=[MIRRORED], source_states=source_states))
    assert "comes from here" in stopped_with(actions)


def test_a_topic_that_was_switched_over_goes_back():
    """Its records are its own from then on."""
    switched = mirror_here("orders", ("T",), state=State.SWITCHED)
    (action,) = planned(view(ORDERS, source_states=[switched]))
    assert action.state.origins == ("E",)
