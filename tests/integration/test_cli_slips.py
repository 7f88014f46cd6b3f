"""Commands that destroy something, typed too fast: what needs a confirmation, and what only shows what it would do."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.client import Cluster, Groups
from millrace.client.groups import GroupOffset
from millrace.testing.broker import BrokerProcess

MILLRACE = str(Path(sys.executable).with_name("millrace"))
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@pytest.fixture
def run(broker, warm_millrace):
    def command(*arguments, stdin=b""):
        given = [warm_millrace, *arguments, "--bootstrap", broker.bootstrap]
        return subprocess.run(given, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False)

    return command


@pytest.fixture
def at_a_terminal(broker):
    """Runs a command whose stdin is a terminal at which an answer is typed."""

    def command(*arguments, answer):
        master, terminal = pty.openpty()
        given = [MILLRACE, *arguments, "--bootstrap", broker.bootstrap]
        with subprocess.Popen(given, stdin=terminal, stdout=-1, stderr=-1) as process:
            os.close(terminal)
            os.write(master, answer + b"\n")
            output, error = process.communicate(timeout=TIMEOUT_S)
        os.close(master)
        return process.returncode, output, error

    return command


@pytest.fixture
def topic(request, run):
    """A topic of two partitions with three records in the first."""
    name = re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)
    assert run("topics", "create", name, "--partitions", "2").returncode == 0
    assert run("produce", name, "--partition", "0", stdin=b"one\ntwo\nthree\n").returncode == 0
    return name


@pytest.fixture
def groups(broker):
    with Cluster(broker.bootstrap) as cluster:
        yield Groups(cluster)


def earliest(run, topic):
    described = json.loads(run("topics", "describe", topic, "--json").stdout)
    return [one["earliest"] for one in described["partitions"]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--all",), "--yes"),
        (("--before", "2"), "ends at offset 0"),  # the second partition is empty
    ],
)
def test_no_record_is_deleted_by_a_slip(run, topic, options, words):
    result = run("topics", "delete-records", topic, *options)
    assert (result.returncode, result.stdout) == (1, b"")
    assert result.stderr.startswith(b"millrace: ")
    assert words in result.stderr.decode()
    assert earliest(run, topic) == [0, 0]


@pytest.mark.parametrize("answer", [b"n", b""])
def test_a_question_that_is_not_answered_with_yes_deletes_nothing(at_a_terminal, run, topic, answer):
    status, output, error = at_a_terminal("topics", "delete-records", topic, "--all", answer=answer)
    assert (status, output) == (1, b"")
    assert topic in error.decode()
    assert error.decode().endswith("millrace: nothing was deleted\n")
    assert earliest(run, topic) == [0, 0]


def test_a_question_that_is_answered_with_yes_deletes_all(at_a_terminal, run, topic):
    status, output, _ = at_a_terminal("topics", "delete-records", topic, "--all", "--json", answer=b"y")
    assert status == 0
    assert json.loads(output) == [{"partition": 0, "earliest": 3}, {"partition": 1, "earliest": 0}]
    assert earliest(run, topic) == [3, 0]


def test_scripts_say_yes_beforehand(run, topic):
    assert run("topics", "delete-records", topic, "--all", "--yes").returncode == 0
    assert earliest(run, topic) == [3, 0]


def test_a_reset_shows_what_it_would_do_until_it_is_to_be_done(run, topic, groups):
    groups.commit(topic, {(topic, 0): GroupOffset(3, "")})
    arguments = ("offsets", "reset", topic, "--topic", topic, "--to", "1")
    for options in ((), ("--dry-run",)):
        shown = run(*arguments, *options)
        assert shown.returncode == 0
        assert shown.stdout.decode().split()[:4] == ["topic", "partition", "now", "new"]
        assert shown.stderr == b"nothing is changed yet: --execute sets these offsets\n"
    planned = json.loads(run(*arguments, "--json").stdout)
    rows = [
        {"topic": topic, "partition": 0, "now": 3, "new": 1},
        {"topic": topic, "partition": 1, "now": None, "new": 0},
    ]
    assert planned == {"group": topic, "store": "kafka", "is_executed": False, "partitions": rows}
    assert groups.offsets(topic)[topic, 0].offset == 3
    done = run(*arguments, "--execute", "--json")
    assert (json.loads(done.stdout), done.stderr) == (planned | {"is_executed": True}, b"")
    assert {one: found.offset for one, found in groups.offsets(topic).items()} == {(topic, 0): 1, (topic, 1): 0}


@pytest.mark.parametrize("options", [(), ("--execute",)])
def test_a_reset_makes_no_group_of_a_mistyped_name(run, topic, groups, options):
    arguments = ("offsets", "reset", f"{topic}-grp", "--topic", topic, "--to", "earliest")
    refused = run(*arguments, *options)
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert refused.stderr.decode() == f"millrace: group {topic}-grp does not exist; --create makes one\n"
    assert f"{topic}-grp" not in [one.group_id for one in groups.list()]


def test_a_reset_creates_a_group_if_it_is_asked_to(run, topic, groups):
    arguments = ("offsets", "reset", topic, "--topic", topic, "--to", "latest", "--create")
    assert run(*arguments).returncode == 0
    assert topic not in [one.group_id for one in groups.list()]
    assert run(*arguments, "--execute").returncode == 0
    assert groups.offsets(topic)[topic, 0].offset == 3


@pytest.fixture(scope="module")
def named(broker, warm_millrace):
    """A topic, a group and a user, whose names are then misspelt."""
    for command in (
        ("topics", "create", "weather"),
        ("offsets", "reset", "report", "--topic", "weather", "--to", "earliest", "--create", "--execute"),
        ("users", "create", "bobby"),
    ):
        given = [warm_millrace, *command, "--bootstrap", broker.bootstrap]
        subprocess.run(given, input=b"secret\n", check=True, timeout=TIMEOUT_S, capture_output=True)


MISSPELT = {
    "topics describe wether": "weather",
    "topics describe --under-replicated wether": "weather",
    "topics extend wether --partitions 2": "weather",
    "topics delete wether": "weather",
    "topics delete-records wether --all --yes": "weather",
    "topics reassign wether": "weather",
    "brokers elect --topic wether": "weather",
    "consume wether": "weather",
    "consume wether --group report": "weather",
    "verify wether": "weather",
    "configs describe --topic wether": "weather",
    "configs set retention.ms=1 --topic wether": "weather",
    "offsets reset report --topic wether --to latest": "weather",
    "offsets reset reprt --topic weather --to latest": "report",
    "groups describe reprt": "report",
    "groups delete reprt": "report",
    "users delete boby": "bobby",
    "users password boby": "bobby",
    "configs set retention.msec=1 --topic weather": "retention.ms",
    "configs unset retention.msec --topic weather": "retention.ms",
    "configs set log.retention.msec=1 --broker all": "log.retention.ms",
    "configs set consumer.session.timeout=1 --group report": "consumer.session.timeout.ms",
    "topics create other --config retention.msec=1": "retention.ms",
}


@pytest.mark.parametrize("line", MISSPELT)
@pytest.mark.usefixtures("named")
def test_a_misspelt_name_is_told_the_one_that_was_meant(run, line):
    refused = run(*line.split())
    assert (refused.returncode, refused.stdout, refused.stderr.count(b"\n")) == (1, b"", 1)
    assert f"; did you mean {MISSPELT[line]}?" in refused.stderr.decode()


@pytest.mark.parametrize(
    "line", ["topics describe payments", "groups delete payments", "consume weather --partition 7"]
)
@pytest.mark.usefixtures("named")
def test_nothing_is_proposed_for_a_name_that_is_like_no_other(run, line):
    refused = run(*line.split())
    assert (refused.returncode, b"did you mean" in refused.stderr) == (1, False)


@pytest.mark.usefixtures("named")
def test_a_topic_that_is_created_by_a_slip_is_told(run):
    assert run("produce", "weather", stdin=b"one\n").stderr == b""
    first = run("produce", "wheather", stdin=b"one\n")
    assert first.stderr == b"millrace: created topic wheather; did you mean weather?\n"
    assert run("topics", "delete", "wheather").returncode == 0


@pytest.mark.parametrize("names", [("retention.sm",), ("retention.ms", "retention.sm")])
def test_a_mistyped_property_is_not_unset(run, topic, names):
    assert run("configs", "set", "retention.ms=5", "--topic", topic).returncode == 0
    refused = run("configs", "unset", *names, "--topic", topic)
    assert refused.returncode == 1
    assert "retention.sm" in refused.stderr.decode()
    (kept,) = json.loads(run("configs", "describe", "--topic", topic, "--json").stdout)
    assert (kept["property"], kept["value"]) == ("retention.ms", "5")
