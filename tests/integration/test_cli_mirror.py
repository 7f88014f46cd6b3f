"""`millrace mirror` as a user runs it: what it prints, how it ends, and with which exit status."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.client import Admin, Cluster
from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess
from millrace_support.waiting import until

MILLRACE = str(Path(sys.executable).with_name("millrace"))
TIMEOUT_S = 120
QUICK = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("brokers")
    with (
        BrokerProcess(folder / "source", properties=QUICK) as source,
        BrokerProcess(folder / "target", properties=QUICK) as target,
    ):
        yield source.bootstrap, target.bootstrap


def run(*arguments, stdin=None):
    return subprocess.run(
        [MILLRACE, *arguments], input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def produce(bootstrap, topic, *values):
    assert run("produce", topic, "--bootstrap", bootstrap, stdin="\n".join(values)).returncode == 0


def test_once_says_what_was_mirrored(brokers):
    source, target = brokers
    produce(source, "orders", "a", "b")
    ended = run("mirror", "--source", f"east={source}", "--target", target, "--topics", "orders", "--once")
    assert ended.stdout.splitlines() == ["east/orders: 2 records are at east.orders", "mirrored 2 records, 0.0 MiB"]
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert run("consume", "east.orders", "--bootstrap", target).stdout == "a\nb\n"


def test_a_topic_that_stops_is_a_sentence_and_status_1(brokers):
    source, target = brokers
    produce(source, "taken", "a")
    produce(target, "taken", "not yours")
    once = ("mirror", "--source", f"mine={source}", "--target", target, "--topics", "taken", "--keep-names", "--once")
    ended = run(*once)
    assert ended.returncode == 1
    assert "topic taken is at the target already and is no mirror of mine/taken" in ended.stderr
    assert run("consume", "taken", "--bootstrap", target).stdout == "not yours\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_a_mirror(brokers, number, status, tmp_path):
    source, target = brokers
    topic = f"stream-{number}"
    config = tmp_path / "mirror.toml"
    config.write_text(
        f'topics = "{topic}"\nway = "copy"\n[target]\nbootstrap = "{target}"\n'
        f'[[sources]]\nname = "s{number}"\nbootstrap = "{source}"\n'
    )
    produce(source, topic, "a")
    process = subprocess.Popen(
        [MILLRACE, "mirror", "--config", str(config)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process, Cluster(target) as cluster:
        mirrored = f"s{number}.{topic}"
        until(lambda: mirrored in Admin(cluster).topics())
        until(lambda: run("consume", mirrored, "--bootstrap", target).stdout == "a\n")
        process.send_signal(number)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == status
    assert errors.decode() == ("millrace: interrupted: mirrored 1 record, 0.0 MiB\n" if status else "")


@pytest.mark.parametrize("away", ["source", "target"])
def test_a_cluster_that_is_away_is_waited_for_and_told_once(brokers, away):
    source, target = brokers
    nobody = f"127.0.0.1:{free_port()}"
    sides = (
        "--source",
        f"e={nobody if away == 'source' else source}",
        "--target",
        nobody if away == "target" else target,
    )
    command = [MILLRACE, "mirror", *sides, "--topics", "x", "--once"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=TIMEOUT_S)
    assert f"no broker answers at {nobody}" in line
    assert rest.splitlines() == ["millrace: interrupted: mirrored 0 records, 0.0 MiB"]


@pytest.mark.parametrize("once", [(), ("--once",)])
def test_a_cluster_is_not_mirrored_into_itself(brokers, once):
    source, _ = brokers
    produce(source, "orders", "a")
    ended = run("mirror", "--source", f"self={source}", "--target", source, "--topics", "orders", *once)
    assert ended.returncode == 1
    assert ended.stderr.startswith("millrace: source self and the target have the same cluster id, ")
    assert "not mirrored into itself" in ended.stderr
    assert "given one id by hand" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


WRONG = {
    "a source without a name": (("--source", "127.0.0.1:9", "--target", "127.0.0.1:9"), "NAME=HOST:PORT"),
    "no target": (("--source", "e=127.0.0.1:9", "--topics", "x"), "target"),
    "no topics": (("--source", "e=127.0.0.1:9", "--target", "127.0.0.1:9"), "which topics?"),
    "no pattern": (("--source", "e=127.0.0.1:9", "--target", "127.0.0.1:9", "--topics", "("), "no regular expression"),
    "no such file": (("--config", "/no/such/file"), "No such file"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_was_typed_wrong_is_told(name):
    arguments, words = WRONG[name]
    ended = run("mirror", *arguments)
    assert ended.returncode in (1, 2)
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
