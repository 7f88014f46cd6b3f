"""Settings of a mirror by options and a file, and what is said of wrong ones."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from millrace.errors import InvalidConfigError, MalformedValueError
from millrace_pipelines.mirror.settings import Accept, DeletedTopics, MirrorSettings, NewTopics, Way
from millrace_pipelines.mirror.settings_file import PATTERNS, parse_source, read_settings

FILE = """
topics = ["orders.*", "clicks"]
way = "copy"
new_topics = "now"
deleted_topics = "delete"
transaction_bytes = 1_000
accept_lost_offsets = true

[target]
bootstrap = "127.0.0.1:9092"

[target.properties]
"client.id" = "mine"
request.timeout.ms = 2500

[[sources]]
name = "east"
bootstrap = "127.0.0.1:9192,127.0.0.1:9193"
topics_exclude = "orders-test"

[[sources]]
name = "west"
bootstrap = "127.0.0.1:9292"
topics = ["clicks"]
properties = { "sasl.jaas.config" = "a secret" }
"""
OPTIONS = {
    "sources": [{"name": "a", "bootstrap": "h:1"}],
    "target": {"bootstrap": "h:2"},
    "topics": "t.*",
}


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "mirror.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return written


FILES = """
topics = ["t"]

[target]
bootstrap = "h:1"
client_config = "target.properties"

[[sources]]
name = "east"
bootstrap = "h:2"
client_config = "/etc/east.properties"
properties = { "ssl.truststore.location" = "tls/east.pem", "client.id" = "location" }

[[sources]]
name = "west"
bootstrap = "h:3"
client_config = "env:WEST"

[sources.properties]
ssl.truststore.location = "west.pem"
"""


def test_names_of_files_are_relative_to_the_file_that_has_them(write, tmp_path):
    settings = read_settings(write(FILES))
    assert settings.target.client_config == str(tmp_path / "target.properties")
    east, west = settings.sources
    assert (east.client_config, west.client_config) == ("/etc/east.properties", "env:WEST")
    assert east.properties == {"ssl.truststore.location": str(tmp_path / "tls/east.pem"), "client.id": "location"}
    assert west.properties == {"ssl.truststore.location": str(tmp_path / "west.pem")}


def test_names_of_files_in_options_are_relative_to_the_current_folder(write):
    options = {"target": {"client_config": "mine.properties"}}
    assert read_settings(write(FILES), options).target.client_config == "mine.properties"


def test_a_file_has_all_of_a_mirror(write):
    settings = read_settings(write(FILE))
    assert (settings.way, settings.new_topics) == (Way.COPY, NewTopics.NOW)
    assert settings.deleted_topics is DeletedTopics.DELETE
    assert settings.transaction_bytes == 1000
    assert settings.accepted == {Accept.LOST_OFFSETS}
    east, west = settings.sources
    wanted = ("orders-eu", "orders-test", "clicks", "my-orders", "clicks2")
    assert [one for one in wanted if east.has_topic(one)] == ["orders-eu", "clicks"]
    assert [one for one in wanted if west.has_topic(one)] == ["clicks"]
    assert settings.target.properties == {"client.id": "mine", "request.timeout.ms": "2500"}
    with settings.target.cluster() as cluster:
        assert cluster.timeout_s == 2.5


def test_options_alone_are_enough():
    settings = read_settings(None, OPTIONS)
    assert settings.sources[0].has_topic("topic")
    assert (settings.way, settings.keep_names, settings.replication_factor) == (Way.AUTO, False, -1)


def test_options_win_over_the_file_and_a_source_is_found_by_its_name(write):
    options = {
        "sources": [{"name": "west", "bootstrap": "h:1"}, {"name": "north", "bootstrap": "h:2"}],
        "target": {"client_config": "env:TARGET"},
        "way": "auto",
    }
    settings = read_settings(write(FILE), options)
    assert [(one.name, one.bootstrap) for one in settings.sources][1:] == [("west", "h:1"), ("north", "h:2")]
    assert settings.sources[1].topics == ("clicks",)
    assert settings.sources[2].topics == ("orders.*", "clicks")
    assert (settings.target.bootstrap, settings.target.client_config) == ("127.0.0.1:9092", "env:TARGET")
    assert settings.way is Way.AUTO


def test_settings_of_groups_and_of_tools():
    source = read_settings(None, OPTIONS).sources[0]
    groups = ("billing", "console-consumer-123", "connect-sink", "millrace-mirror-a", "__internal")
    assert [one for one in groups if source.has_group(one)] == ["billing"]


@pytest.mark.parametrize(
    ("name", "goes_along"),
    [
        ("retention.ms", True), ("cleanup.policy", True), ("max.message.bytes", True), ("compression.type", True),
        ("min.insync.replicas", False), ("unclean.leader.election.enable", False),
        ("leader.replication.throttled.replicas", False), ("follower.replication.throttled.replicas", False),
        ("remote.storage.enable", False), ("local.retention.ms", False),
    ],
)  # fmt: skip
def test_what_operators_of_the_target_set_does_not_go_along(name, goes_along):
    assert read_settings(None, OPTIONS).goes_along(name) is goes_along


def test_a_list_replaces_the_one_by_default():
    settings = read_settings(None, OPTIONS | {"settings_deny": ["retention\\..*"]})
    assert settings.goes_along("min.insync.replicas")
    assert not settings.goes_along("retention.ms")


WRONG = [
    ("way", 'way = "folow"', "line 2: way: 'folow': one of auto, follow, copy; did you mean follow?"),
    ("new_topics", "new_topics = 3", "line 2: new_topics: 3: one of beginning, now, no"),
    ("keep_names", 'keep_names = "yes"', "line 2: keep_names: 'yes': true or false is expected"),
    ("transaction_bytes", "transaction_bytes = 0", "line 2: transaction_bytes: 0: a whole number from 1 on is"),
    ("acls", "acls = 1", "line 2: acls: 1: true or false"),
    ("throttle", "throttle_bytes_per_s = true", "line 2: throttle_bytes_per_s: True: a whole number from 0 on"),
    ("replication_factor", "replication_factor = 0", "line 2: replication_factor: 0: a number from 1 on"),
    ("topics", 'topics_exclude = ["("]', "line 2: topics_exclude: '(' is no regular expression"),
    ("topics", "topics_exclude = 7", "line 2: topics_exclude: 7: a regular expression, or a list of them"),
    ("unknown", 'keep_name = "x"', "line 2: keep_name: there is no such setting; did you mean keep_names?"),
    ("table", "target = 3", "line 2: target: a table is expected"),
]


@pytest.mark.parametrize(("text", "said"), [one[1:] for one in WRONG])
def test_a_wrong_value_is_named_with_its_line(write, text, said):
    rest = "" if text.startswith("target") else '[target]\nbootstrap = "h:1"\n'
    rest += '[[sources]]\nname = "a"\nbootstrap = "h:2"\ntopics = "t"\n'
    path = write(f"\n{text}\n{rest}")
    with pytest.raises(InvalidConfigError) as error:
        read_settings(path)
    assert str(error.value).startswith(f"{path}, {said}")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "west"', 'name = "we.st"', "line 22: sources[1].name: 'we.st': a name of letters, digits, _ and -"),
        ('name = "west"', 'name = "east"', "line 22: sources[1].name: east: another source has this name"),
        ('"127.0.0.1:9292"', '"127.0.0.1"', "line 23: sources[1].bootstrap: '127.0.0.1': expected HOST:PORT"),
        ('"127.0.0.1:9292"', "9292", "line 23: sources[1].bootstrap: 9292: a text is expected"),
        ("topics_exclude", "exclude_topics", "line 19: sources[0].exclude_topics: there is no such setting"),
        ('"client.id"', '"client.ids"', "line 13: target.properties.client.ids: unknown property client.ids; did you"),
        ("timeout.ms = 2500", "timeout.ms = -1", "line 14: target.properties.request.timeout.ms: Invalid value -1"),
        ("[target.properties]", "[target.propertys]", "line 12: target.propertys: there is no such setting; did you"),
    ],
)
def test_a_wrong_value_in_a_table_is_named_with_its_line(write, old, new, said):
    path = write(FILE.replace(old, new))
    with pytest.raises(InvalidConfigError) as error:
        read_settings(path)
    assert str(error.value).startswith(f"{path}, {said}")


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ("sources", "sources: which clusters? a name and a bootstrap are needed, NAME=HOST:PORT"),
        ("target", "target: which cluster? its bootstrap is needed, HOST:PORT"),
        ("topics", "topics: which topics? a regular expression is needed, such as orders.*"),
    ],
)
def test_what_is_missing_is_said(left_out, said):
    with pytest.raises(InvalidConfigError) as error:
        read_settings(None, {name: value for name, value in OPTIONS.items() if name != left_out})
    assert str(error.value) == said


@pytest.mark.parametrize(("text", "said"), [("a = [", "Invalid value"), (None, "No such file")])
def test_a_file_that_cannot_be_read_is_named(write, tmp_path, text, said):
    path = str(tmp_path / "none.toml") if text is None else write(text)
    with pytest.raises(InvalidConfigError, match=said) as error:
        read_settings(path)
    assert str(error.value).startswith(path)


def test_a_source_by_one_text():
    assert parse_source("east=h:1,h:2") == {"name": "east", "bootstrap": "h:1,h:2"}
    for text in ("east", "=h:1", "east="):
        with pytest.raises(MalformedValueError, match="expected NAME=HOST:PORT"):
            parse_source(text)


def test_secrets_are_not_shown(write):
    path = write(FILE)
    settings = read_settings(path)
    assert "a secret" not in repr(settings)
    with pytest.raises(InvalidConfigError) as error:
        settings.sources[1].security()
    assert "a secret" not in str(error.value)


def test_the_credentials_of_the_environment_are_the_targets_alone(tmp_path):
    environment = {"MILLRACE_SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SOURCE": "security.protocol=SSL"}
    settings = read_settings(None, OPTIONS)
    with pytest.raises(InvalidConfigError, match="sasl"):
        settings.target.security(environment)
    assert settings.sources[0].security(environment).protocol.name == "PLAINTEXT"
    of_its_own = read_settings(None, OPTIONS | {"sources": [{**OPTIONS["sources"][0], "client_config": "env:SOURCE"}]})
    assert of_its_own.sources[0].security(environment).protocol.name == "SSL"


def test_each_setting_is_in_the_table_of_the_page():
    page = (Path(__file__).parents[4] / "docs" / "mirror.md").read_text()
    table = page.partition("| setting |")[2].partition("\n\n")[0]
    names = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert names == {one.name for one in fields(MirrorSettings) if one.metadata} | {*PATTERNS}
