"""The `millrace` command as a user runs it, against a broker."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.testing.broker import BrokerProcess
from millrace_support.log_faults import faults

MILLRACE = str(Path(sys.executable).with_name("millrace"))
TIMEOUT_S = 120


def run(*arguments, stdin=b"", program=MILLRACE):
    return subprocess.run([program, *arguments], input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for all tests here; each has a topic of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@pytest.fixture
def topic(request):
    return re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)


@pytest.fixture
def millrace(broker, warm_millrace):
    """Runs a command that must succeed; its stdout."""

    def command(*arguments, stdin=b""):
        result = run(*arguments, "--bootstrap", broker.bootstrap, stdin=stdin, program=warm_millrace)
        said = re.sub(
            rb"millrace: created topic .*\n", b"", result.stderr
        )  # the topics of these tests are called alike
        assert (result.returncode, said) == (0, b"")
        return result.stdout

    return command


@pytest.fixture
def refused(broker, warm_millrace):
    """Runs a command that must fail; its one line of stderr."""

    def command(*arguments, stdin=b""):
        result = run(*arguments, "--bootstrap", broker.bootstrap, stdin=stdin, program=warm_millrace)
        assert result.returncode in (1, 2)
        lines = result.stderr.decode().splitlines()
        assert len(lines) == 1
        assert lines[0].startswith("millrace: ")
        return lines[0]

    return command


def rows(jsonl):
    return [json.loads(line) for line in jsonl.splitlines()]


def test_a_topic_is_extended_and_its_oldest_records_deleted(millrace, refused, topic):
    millrace("topics", "create", topic, "--partitions", "1")
    millrace("produce", topic, stdin=b"one\ntwo\nthree\n")
    assert json.loads(millrace("topics", "extend", topic, "--partitions", "2", "--json"))["partitions"] == 2
    assert topic in refused("topics", "extend", topic, "--partitions", "2")
    deleted = millrace("topics", "delete-records", topic, "--partition", "0", "--before", "2", "--json")
    assert json.loads(deleted) == [{"partition": 0, "earliest": 2}]
    assert b"3" in millrace("topics", "delete-records", topic, "--all", "--yes")
    assert f"{topic}-0 ends at offset 3" in refused("topics", "delete-records", topic, "--before", "9")


def test_configurations_are_set_shown_and_unset(millrace, refused, topic):
    millrace("topics", "create", topic)
    assert json.loads(millrace("configs", "describe", "--topic", topic, "--json")) == []
    [changed] = json.loads(millrace("configs", "set", "retention.ms=5", "--topic", topic, "--json"))
    assert changed == {"property": "retention.ms", "value": "5", "from": "topic", "live": True}
    assert b"retention.ms" in millrace("configs", "describe", "--topic", topic)
    [changed] = json.loads(millrace("configs", "unset", "retention.ms", "--topic", topic, "--json"))
    assert (changed["value"], changed["from"]) == ("604800000", "default")
    [changed] = json.loads(millrace("configs", "set", "log.segment.bytes=7777", "--broker", "all", "--json"))
    assert changed["from"] == "all brokers, live"
    described = json.loads(millrace("configs", "describe", "--all", "--topic", topic, "--json"))
    assert {one["property"]: one["value"] for one in described}["segment.bytes"] == "7777"
    millrace("configs", "unset", "log.segment.bytes", "--broker", "all")
    assert "broker, at its start" in millrace("configs", "describe", "--broker", "1").decode()
    assert "Invalid value soon for configuration retention.ms" in refused(
        "configs", "set", "retention.ms=soon", "--topic", topic
    )
    assert "Set(num.partitions)" in refused("configs", "set", "num.partitions=2", "--broker", "1")


def test_topics_from_creation_to_deletion(millrace, topic):
    created = json.loads(
        millrace("topics", "create", topic, "--partitions", "2", "--config", "retention.ms=1000", "--json")
    )
    assert (created["topic"], created["partitions"], created["replicas"]) == (topic, 2, 1)
    listed = {one["topic"]: one for one in json.loads(millrace("topics", "list", "--json"))}
    assert listed[topic] == created | {"records": 0, "bytes": 0}
    millrace("produce", topic, "--partition", "1", stdin=b"one\ntwo\n")
    [row] = [one for one in json.loads(millrace("topics", "list", "--json")) if one["topic"] == topic]
    assert (row["records"], row["bytes"] > len(b"onetwo")) == (2, True)
    assert topic.encode() in millrace("topics", "list")
    described = json.loads(millrace("topics", "describe", topic, "--json"))
    assert [(one["partition"], one["leader"], one["earliest"], one["latest"]) for one in described["partitions"]] == [
        (0, 1, 0, 0),
        (1, 1, 0, 2),
    ]
    assert created["id"].encode() in millrace("topics", "describe", topic)
    assert json.loads(millrace("topics", "delete", topic, "--json")) == {"deleted": topic}
    assert topic not in [one["topic"] for one in json.loads(millrace("topics", "list", "--json"))]


def test_brokers_and_their_health_in_one_screen(millrace):
    [row] = json.loads(millrace("brokers", "list", "--json"))
    assert row["free_bytes"] > 0
    assert b"free_bytes" in millrace("brokers", "list")
    health = json.loads(millrace("cluster", "health", "--json"))
    assert (health["is_well"], [one["is_problem"] for one in health["checks"]]) == (True, [False] * 8)
    assert millrace("cluster", "health").count(b"\n") == 1 + 8


def test_several_topics_in_one_command(broker, millrace, topic):
    first, second = f"{topic}-a", f"{topic}-b"
    assert millrace("topics", "create", first, second) == (
        f"created {first} with 1 partition(s)\ncreated {second} with 1 partition(s)\n".encode()
    )
    described = rows(millrace("topics", "describe", first, second, "--json"))
    assert [one["topic"] for one in described] == [first, second]
    result = run("topics", "delete", first, "nothing", second, "--bootstrap", broker.bootstrap)
    assert (result.returncode, result.stdout) == (1, f"deleted {first}\ndeleted {second}\n".encode())
    assert result.stderr == b"millrace: topic nothing: The topic 'nothing' does not exist.\n"


def test_a_topics_description_has_the_properties_that_differ_from_their_defaults(millrace, topic):
    millrace("topics", "create", topic, "--config", "retention.ms=1000")
    [described] = rows(millrace("topics", "describe", topic, "--json"))
    assert {"property": "retention.ms", "value": "1000", "from": "topic"} in described["properties"]
    assert "default" not in {one["from"] for one in described["properties"]}
    lines = millrace("topics", "describe", topic).decode().splitlines()
    assert ["property", "value", "from"] in [line.split() for line in lines]
    assert ["retention.ms", "1000", "topic"] in [line.split() for line in lines]


def test_an_address_comes_from_the_environment_or_a_profile(broker, tmp_path, topic):
    (tmp_path / "millrace").mkdir()
    profile = f'[profiles.test]\nbootstrap = "{broker.bootstrap}"\n'
    (tmp_path / "millrace" / "config.toml").write_text(profile, encoding="utf-8")
    for variables in (
        {"MILLRACE_BOOTSTRAP": broker.bootstrap},
        {"MILLRACE_PROFILE": "test", "XDG_CONFIG_HOME": str(tmp_path)},
    ):
        result = subprocess.run(
            [MILLRACE, "topics", "list"], env={**os.environ, **variables}, capture_output=True, timeout=TIMEOUT_S,
            check=False,
        )  # fmt: skip
        assert (result.returncode, result.stderr) == (0, b"")


def test_lines_come_back_as_they_were(millrace, topic):
    lines = b"plain\n\n\xff\xfe not text\n last "
    assert millrace("produce", topic, stdin=lines) == f"4 record(s) acknowledged by {topic}\n".encode()
    assert millrace("consume", topic) == lines + b"\n"


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_keys_headers_and_times_come_back(millrace, codec, topic):
    produced = millrace(
        *("produce", topic, "--codec", codec, "--key-separator", "::", "--timestamp-ms", "1700000000000"),
        *("--header", "source=test", "--json"),
        stdin=b"a::1\nb::2::3\n",
    )
    assert json.loads(produced) == {"topic": topic, "acknowledged": 2}
    common = {"topic": topic, "partition": 0, "timestamp_ms": 1_700_000_000_000, "headers": [["source", "test"]]}
    assert rows(millrace("consume", topic, "--json")) == [
        {**common, "offset": 0, "key": "a", "value": "1"},
        {**common, "offset": 1, "key": "b", "value": "2::3"},
    ]
    assert millrace("consume", topic, "--print-key", "--print-headers") == b"source=test\ta\t1\nsource=test\tb\t2::3\n"


def test_a_key_always_goes_to_the_same_partition(millrace, topic):
    millrace("topics", "create", topic, "--partitions", "4")
    lines = b"".join(b"k%d:%d\n" % (number % 20, number) for number in range(2000))
    millrace("produce", topic, "--key-separator", ":", stdin=lines)
    found = rows(millrace("consume", topic, "--json"))
    assert len(found) == 2000
    homes = {(row["key"], row["partition"]) for row in found}
    assert len(homes) == 20
    assert {partition for _, partition in homes} == {0, 1, 2, 3}
    for key, partition in homes:
        values = [int(row["value"]) for row in found if row["key"] == key]
        assert values == sorted(values)
        assert {row["partition"] for row in found if row["key"] == key} == {partition}


def test_a_large_file_comes_back_whole(millrace, tmp_path, topic):
    file = tmp_path / "lines"
    expected = b"".join(b"%07d %s\n" % (number, b"x" * (number % 300)) for number in range(50_000))
    file.write_bytes(expected)
    millrace("topics", "create", topic, "--partitions", "3")
    assert json.loads(millrace("produce", topic, "--file", str(file), "--json"))["acknowledged"] == 50_000
    found = millrace("consume", topic).splitlines(keepends=True)
    assert sorted(found) == expected.splitlines(keepends=True)


def test_where_reading_begins_and_ends(millrace, topic):
    for second in range(3):
        millrace("produce", topic, "--timestamp-ms", str(1_700_000_000_000 + 1000 * second), stdin=b"%d\n" % second)
    assert millrace("consume", topic, "--max-messages", "2") == b"0\n1\n"
    assert millrace("consume", topic, "--from", "1") == b"1\n2\n"
    assert millrace("consume", topic, "--from", "latest") == b""
    assert millrace("consume", topic, "--from", "2023-11-14T22:13:21") == b"1\n2\n"
    assert millrace("consume", topic, "--from", "2030-01-01") == b""
    assert millrace("consume", topic, "--max-messages", "0") == b""


def test_following_waits_for_more_until_it_is_interrupted(broker, millrace, topic):
    millrace("produce", topic, stdin=b"first\n")
    command = [MILLRACE, "consume", topic, "--follow", "--bootstrap", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
        assert follower.stdout.readline() == b"first\n"
        millrace("produce", topic, stdin=b"second\n")
        assert follower.stdout.readline() == b"second\n"
        follower.send_signal(signal.SIGINT)
        assert follower.communicate(timeout=TIMEOUT_S) == (b"", b"")
        assert follower.returncode == 0


def test_a_reader_that_goes_away_ends_the_command_quietly(broker, millrace, topic):
    millrace("produce", topic, stdin=b"x" * 1000 + b"\n" + b"line\n" * 200_000)
    command = [MILLRACE, "consume", topic, "--bootstrap", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as consumer:
        consumer.stdout.readline()
        consumer.stdout.close()
        assert consumer.stderr.read() == b""
        assert consumer.wait(TIMEOUT_S) == 0


def test_lines_are_sent_while_the_input_is_still_open(broker, millrace, topic):
    millrace("topics", "create", topic)
    command = [MILLRACE, "produce", topic, "--bootstrap", broker.bootstrap]
    follow = [MILLRACE, "consume", topic, "--follow", "--max-messages", "1", "--bootstrap", broker.bootstrap]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as producer,
        subprocess.Popen(follow, stdout=subprocess.PIPE) as consumer,
    ):
        producer.stdin.write(b"now\n")
        producer.stdin.flush()
        assert consumer.communicate(timeout=TIMEOUT_S)[0] == b"now\n"
        assert producer.communicate(timeout=TIMEOUT_S)[0] == f"1 record(s) acknowledged by {topic}\n".encode()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("topics", "describe", "nowhere"), "topic nowhere does not exist"),
        (("topics", "delete", "nowhere"), "nowhere"),
        (("topics", "create", "bad name"), "bad name"),
        (("topics", "create", "t", "--config", "nonsense"), "'nonsense': expected NAME=VALUE"),
        (("topics", "create", "t", "--config", "no.such=1"), "no.such"),
        (("consume", "nowhere"), "topic nowhere does not exist"),
        (("topics", "describe", b"\xff"), "'\\udcff' is no text in UTF-8"),
        (("topics", "create", "t", "--config", b"retention.ms=\xff"), "'\\udcff' is no text in UTF-8"),
        (("produce", b"\xff"), "'\\udcff' is no text in UTF-8"),
        (("topics", "create", "t", "--partitions", str(2**31 - 1)), "2147483647 new partitions"),
        (("groups", "list", "--zookeeper", "127.0.0.1:x"), "'127.0.0.1:x': expected HOST:PORT"),
        (("groups", "list", "--zookeeper", "127.0.0.1:1"), "no ZooKeeper answers at 127.0.0.1:1"),
    ],
)
def test_what_can_not_be_done_is_one_line(refused, arguments, words):
    assert words in refused(*arguments)


def test_reading_what_is_not_there(millrace, refused, topic):
    millrace("produce", topic, stdin=b"one\n")
    assert f"{topic} has no offset 5: it ends at 1" in refused("consume", topic, "--from", "5")
    assert "no partition 3" in refused("consume", topic, "--partition", "3")
    assert "--from soon" in refused("consume", topic, "--from", "soon")
    assert f"--from {2**63}: an offset is at most" in refused("consume", topic, "--from", str(2**63))


def test_before_all_time_is_the_beginning(millrace, topic):
    millrace("produce", topic, stdin=b"one\n")
    for time in ("0001-01-01", "1969-12-31T23:59:59.999"):
        assert millrace("consume", topic, "--from", time) == b"one\n"


def test_separators_and_headers_are_bytes(millrace, topic):
    headers = ("--header", b"h=\xfe", "--header", "h=again")
    millrace("produce", topic, "--key-separator", b"\xff", *headers, stdin=b"k\xffv\n")
    assert millrace("consume", topic, "--print-key", "--print-headers") == b"h=\xfe,h=again\tk\tv\n"


@pytest.mark.parametrize(
    ("command", "closed"), [("produce t", "<&-"), ("produce t", ">&-"), ("consume t", ">&-"), ("topics list", ">&-")]
)
def test_a_closed_stream_is_one_line(broker, command, closed):
    line = f"exec {MILLRACE} {command} --bootstrap {broker.bootstrap} {closed}"
    result = subprocess.run(["/bin/sh", "-c", line], capture_output=True, timeout=TIMEOUT_S, check=False)
    name = "stdin" if closed == "<&-" else "stdout"
    assert (result.returncode, result.stderr) == (1, f"millrace: {name} is closed\n".encode())


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"5",
        b'{"topic": "t", "partition": 0}',
        b'{"topic": "t", "partition": 0, "offset": 1.5}',
        b'{"topic": "t", "partition": 0, "offset": 1e999}',
        b'{"topic": "t", "partition": 0, "offset": 9223372036854775808}',
        b'{"topic": "t", "partition": 2147483648, "offset": 0}',
        b'{"topic": "t", "partition": -1, "offset": 0}',
        b'{"topic": "t", "partition": true, "offset": 0}',
        b'{"topic": "t", "partition": 0, "offset": false}',
    ],
)
def test_offsets_that_are_none_are_named_by_their_line(refused, tmp_path, line):
    path = tmp_path / "offsets.jsonl"
    path.write_bytes(b'{"topic": "t", "partition": 0, "offset": 1}\n' + line + b"\n")
    assert refused("offsets", "import", "g", str(path)).startswith(f"millrace: {path}, line 2: ")


def test_a_refused_record_leaves_the_count_of_those_before(broker, millrace, topic):
    millrace("topics", "create", topic, "--config", "max.message.bytes=1000")
    arguments = ("produce", topic, "--bootstrap", broker.bootstrap)
    with subprocess.Popen([MILLRACE, *arguments], stdin=-1, stdout=-1, stderr=-1) as producer:
        producer.stdin.write(b"small\n")
        producer.stdin.flush()
        follow = run("consume", topic, "--follow", "--max-messages", "1", "--bootstrap", broker.bootstrap)
        assert follow.stdout == b"small\n"
        output, error = producer.communicate(b"x" * 2000 + b"\n", timeout=TIMEOUT_S)
    assert output == f"1 record(s) acknowledged by {topic}\n".encode()
    assert error.startswith(f"millrace: line 2: produce to {topic}-0: ".encode())
    assert producer.returncode == 1


def test_the_lines_of_a_batch_that_the_broker_refuses_are_named(millrace, refused, topic):
    millrace("topics", "create", topic, "--config", "cleanup.policy=compact")
    keyless = b'{"value": "1", "key": "k"}\n{"value": "2"}\n'
    error = refused("produce", topic, "--input", "json", stdin=keyless)
    assert error.startswith(f"millrace: a record of the lines 1 to 2: produce to {topic}-0: ")


@pytest.mark.parametrize("command", [("topics", "list"), ("produce", "t"), ("consume", "t")])
def test_no_broker_is_one_line_that_names_the_address(command):
    result = run(*command, "--bootstrap", "127.0.0.1:1")
    assert result.returncode == 1
    assert result.stderr.decode().startswith("millrace: no broker answers at 127.0.0.1:1")
    assert result.stderr.count(b"\n") == 1


def test_the_broker_command_is_the_broker(tmp_path):
    command = [MILLRACE, "broker", "--standalone", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as broker:
        word, address = broker.stdout.readline().decode().split()
        assert word == "listening"
        assert json.loads(run("topics", "list", "--json", "--bootstrap", address).stdout) == []
        broker.send_signal(signal.SIGTERM)
        stdout, stderr = broker.communicate(timeout=TIMEOUT_S)
        assert (stdout, faults(stderr.decode()), broker.returncode) == (b"", [], 0)


def test_the_broker_command_says_why_it_does_not_start(tmp_path):
    result = run("broker", "--standalone", "--data", str(tmp_path), "--set", "no.such.property=1")
    assert result.returncode == 1
    assert b"no.such.property" in result.stderr
    result = run("broker", "--standalone", "--listen", "127.0.0.1:0", "--data", "")
    assert (result.returncode, result.stderr) == (
        2,
        b"millrace broker: give --data DIR or log.dirs, the folder for logs\n",
    )
    result = run("broker", "--zookeeper", "127.0.0.1:x", "--listen", "127.0.0.1:0", "--data", str(tmp_path))
    assert result.returncode == 2
    assert result.stderr.startswith(b"millrace broker: '127.0.0.1:x': expected HOST:PORT")
