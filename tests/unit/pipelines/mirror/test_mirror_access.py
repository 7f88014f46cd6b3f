"""Access control entries of mirrored topics that follow from those of the source."""

import pytest

from millrace.errors import InvalidConfigError
from millrace.security.acls import (
    Acl,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from millrace_pipelines.mirror.access import mirrored_acls
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.settings_file import read_settings
from millrace_pipelines.mirror.states import State, TopicState

ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
READ, WRITE, ALL, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL, AclOperation.DELETE
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def state(topic="orders", **fields):
    told = {"source": "east", "topic": topic, "target_topic": f"east.{topic}", "way": Way.COPY, "target_topic_id": "t"}
    return TopicState(**told | fields)


def entry(name, operation=READ, permission=ALLOW, kind=LITERAL):
    pattern = ResourcePattern(ResourceType.TOPIC, name, kind)
    return AclBinding(pattern, Acl("User:alice", "*", operation, permission))


@pytest.mark.parametrize(
    ("pattern", "covers"),
    [
        (("orders", LITERAL), True), (("ord", PREFIXED), True), (("*", LITERAL), True), (("orders-eu", LITERAL), False),
        (("clicks", PREFIXED), False), (("orders-", PREFIXED), False), (("*", PREFIXED), False),
        (("east.orders", LITERAL), False),
    ],
)  # fmt: skip
def test_what_covers_the_topic_at_the_source_becomes_an_entry_on_its_own_name(pattern, covers):
    found = mirrored_acls([entry(pattern[0], kind=pattern[1])], [state()])
    assert found == ({entry("east.orders")} if covers else set())


@pytest.mark.parametrize(
    ("operation", "permission", "copied"),
    [
        (READ, ALLOW, READ), (WRITE, ALLOW, None), (ALL, ALLOW, READ), (DELETE, ALLOW, DELETE),
        (READ, DENY, READ), (WRITE, DENY, WRITE), (ALL, DENY, ALL),
    ],
)  # fmt: skip
def test_what_is_copied_is_written_by_the_mirror_alone(operation, permission, copied):
    given = [entry("orders", operation, permission)]
    assert mirrored_acls(given, [state()]) == (set() if copied is None else {entry("east.orders", copied, permission)})
    for whole in (state(way=Way.FOLLOW), state(state=State.SWITCHING)):
        assert mirrored_acls(given, [whole]) == {entry("east.orders", operation, permission)}


@pytest.mark.parametrize("fields", [{"target_topic_id": None}, {"state": State.SWITCHED}])
def test_topics_that_the_mirror_does_not_have_get_no_entries(fields):
    assert mirrored_acls([entry("orders")], [state(**fields)]) == set()


def test_several_topics_have_their_entries_each():
    topics = [state(), state("clicks"), state("orders-eu")]
    found = mirrored_acls([entry("orders", kind=PREFIXED), entry("clicks", DELETE)], topics)
    assert found == {entry("east.orders"), entry("east.orders-eu"), entry("east.clicks", DELETE)}


@pytest.mark.parametrize(
    ("source", "target", "missing"),
    [({}, {"zookeeper": "z:1"}, "source a"), ({"zookeeper": "z:1"}, {}, "target"), ({}, {}, "target")],
)
def test_users_without_a_zookeeper_are_refused_with_the_way_on(source, target, missing):
    options = {
        "sources": [{"name": "a", "bootstrap": "h:1", **source}], "target": {"bootstrap": "h:2", **target},
        "topics": "t", "users": True,
    }  # fmt: skip
    with pytest.raises(InvalidConfigError) as error:
        read_settings(None, options)
    assert f"that of the {missing} is not known: give its zookeeper" in str(error.value)
    assert "millrace users create" in str(error.value)
    assert not read_settings(None, options | {"users": False}).users
