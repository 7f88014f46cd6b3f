"""Topics beside their declarations, and the state that definitions are made of."""

from datetime import date

import pytest

from millrace.errors import PlatformError
from millrace_pipelines.declaration.attributes import TableDeclaration
from millrace_pipelines.declaration.cluster import (
    Environment,
    State,
    environment_of,
    read_state,
    write_topics,
)
from millrace_pipelines.defs.topic_checks import Difference, declared_settings, is_same, says
from millrace_pipelines.defs.topic_sensor import update_state


def test_settings_are_written_as_the_cluster_writes_them():
    config = {"retention.ms": -1, "min.cleanable.dirty.ratio": 0.5, "preallocate": True, "cleanup.policy": "compact"}
    assert declared_settings(TableDeclaration(topic="a", config=config)) == {
        "retention.ms": "-1", "min.cleanable.dirty.ratio": "0.5", "preallocate": "true", "cleanup.policy": "compact",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "there", "same"),
    [
        ("1", "1", True), ("0.5", "0.50", True), ("1", "2", False), ("a", None, False), ("true", "false", False),
        ("compact, delete", "compact,delete", True), ("compact,delete", "delete", False),
    ],
)  # fmt: skip
def test_equal_settings(declared, there, same):
    assert is_same(declared, there) is same


def test_what_differs_is_said():
    assert says([Difference("partitions", "4", "2"), Difference("no.such", "1", None)], {}) == (
        "The topic is not as declared: partitions is 2, declared 4; no.such is unknown to the cluster, declared 1."
    )


def test_topics_are_added_and_removed(tmp_path):
    state = tmp_path / "below" / "state"
    assert update_state(state, ["a", "b"], [], Environment()).topics == {"a", "b"}
    days = {"a": date(2026, 3, 1), "b": date(2026, 3, 2), "unknown": date(2026, 3, 3)}
    assert update_state(state, [], [], Environment(), days).first_days == {"a": days["a"], "b": days["b"]}
    assert update_state(state, ["c"], ["a"], Environment(), {"b": date(2027, 1, 1)}) == read_state(state)
    assert read_state(state) == State(frozenset({"b", "c"}), Environment(), {"b": days["b"]})
    assert [path.name for path in state.parent.iterdir()] == ["state"]


def test_an_environment_is_kept_beside_the_topics(tmp_path):
    state = tmp_path / "state"
    variables = {
        "MILLRACE_SCHEMA_DIR": "/schemas",
        "MILLRACE_ZOOKEEPER": "z:2181",
        "MILLRACE_WEBHOOK": "http://h/secret",
        "MILLRACE_ADMIN_URL": "http://h:9644",
    }
    there = Environment("/schemas", has_zookeeper=True, has_webhook=True, has_admin=True)
    assert environment_of(variables) == there
    assert update_state(state, ["a"], [], there) == read_state(state) == State(frozenset({"a"}), there)
    assert "secret" not in state.read_text()
    write_topics(state, ["b"])
    assert read_state(state) == State(frozenset({"b"}), there)


@pytest.mark.parametrize(
    ("kept", "environment"),
    [
        ("", Environment()),
        (
            ', "environment": {"schema_dir": "/s", "has_zookeeper": true, "has_webhook": false}',
            Environment("/s", has_zookeeper=True),
        ),
    ],
)
def test_the_state_of_an_earlier_version_has_its_topics(tmp_path, kept, environment):
    (tmp_path / "state").write_text(f'{{"version": 1, "topics": ["a"]{kept}}}')
    assert read_state(tmp_path / "state") == State(frozenset({"a"}), environment)


@pytest.mark.parametrize("garbage", ["", "[]", "{", '{"version": 2, "topics": ["a"]}', '{"version": 1, "topics": {}}'])
def test_a_state_that_is_none_has_no_topics(tmp_path, garbage):
    (tmp_path / "state").write_text(garbage)
    assert read_state(tmp_path / "state").topics == frozenset()
    write_topics(tmp_path / "state", ["a"])
    assert read_state(tmp_path / "state").topics == {"a"}


def test_a_state_that_can_not_be_written_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(PlatformError, match=r"^the topics of the cluster can't be kept: "):
        update_state(tmp_path / "file" / "state", ["a"], [], Environment())
