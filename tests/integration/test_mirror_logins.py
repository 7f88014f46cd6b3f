"""A mirror with wrong credentials: the sentence names the side and the property, and the command ends or is patient."""

import subprocess
import sys
from pathlib import Path

import pytest

from millrace.testing.broker import BrokerProcess
from millrace_support.certificates import Authority
from millrace_support.guarded_brokers import PASSWORD, USER, GuardedBroker
from millrace_support.token_server import TokenServer

MILLRACE = str(Path(sys.executable).with_name("millrace"))
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    with TokenServer({USER: PASSWORD}) as tokens, GuardedBroker("millrace", folder, tokens) as started:
        yield started


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("open")) as started:
        yield started


def without_certificate(properties):
    return {name: value for name, value in properties.items() if "keystore" not in name}


# What is given, for which listener, and what is said of it beside the side's name.
ENDS = {
    "a wrong password": ("SCRAM", lambda one, _: one.properties("SCRAM", "wrong"), ["sasl.jaas.config"]),
    "a wrong password in plain": ("PLAIN", lambda one, _: one.properties("PLAIN", "wrong"), ["sasl.jaas.config"]),
    "a wrong secret of tokens": ("TOKEN", lambda one, _: one.properties("TOKEN", "wrong"), ["answered 401"]),
    "a wrong authority": (
        "SCRAM",
        lambda one, strangers: one.properties("SCRAM") | {"ssl.truststore.location": strangers},
        ["ssl.truststore.location"],
    ),
    "no certificate": (
        "MUTUAL",
        lambda one, _: without_certificate(one.properties("MUTUAL")),
        ["ssl.keystore.location"],
    ),
    "a missing file": (
        "SCRAM",
        lambda one, _: one.properties("SCRAM") | {"ssl.truststore.location": "/nowhere/ca.pem"},
        ["given.properties", "ssl.truststore.location: /nowhere/ca.pem: No such file"],
    ),
    "a property that is unknown": (
        "SCRAM",
        lambda one, _: one.properties("SCRAM") | {"ssl.truststore.lokation": "ca.pem"},
        ["given.properties", "ssl.truststore.lokation", "did you mean ssl.truststore.location?"],
    ),
    "a mechanism that is unknown": (
        "SCRAM",
        lambda one, _: one.properties("SCRAM") | {"sasl.mechanism": "SCRAM-SHA-257"},
        ["given.properties", "sasl.mechanism", "SCRAM-SHA-512"],
    ),
}


def command(side, address, other, properties, folder):
    file = folder / "given.properties"
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    if side == "source":
        where = ["--source", f"n={address}", "--source-client-config", f"n={file}", "--target", other.bootstrap]
    else:
        where = ["--source", f"n={other.bootstrap}", "--target", address, "--target-client-config", str(file)]
    return [MILLRACE, "mirror", *where, "--topics", "orders.*"]


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("given", ENDS)
def test_what_is_wrong_is_a_sentence_of_its_side(guarded, other, side, given, tmp_path):
    listener, properties, words = ENDS[given]
    strangers = str(Authority("Another").issue().write(tmp_path, "another").trust_store_pem)
    line = command(side, guarded.addresses[listener], other, properties(guarded, strangers), tmp_path)
    ended = subprocess.run([*line, "--once"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert ended.returncode == 1
    [said] = ended.stderr.splitlines()
    assert said.startswith("millrace: source n: " if side == "source" else "millrace: the target: ")
    assert all(one in said for one in words)
    assert PASSWORD not in said


# What may be a broker that is away, or starts: it is waited for, and told once.
WAITS = {
    "plaintext to TLS": ("SCRAM", lambda _: {}, "security.protocol"),
    "TLS to plaintext": ("PLAIN", lambda one: one.properties("MUTUAL"), "no broker speaks TLS at"),
}


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("given", WAITS)
def test_what_may_pass_is_told_once_and_waited_for(guarded, other, side, given, tmp_path):
    listener, properties, words = WAITS[given]
    line = command(side, guarded.addresses[listener], other, properties(guarded), tmp_path)
    with subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as running:
        said = running.stderr.readline()
        running.terminate()
        rest = running.stderr.read()
    name = "source n" if side == "source" else "the target"
    assert said.startswith(f"millrace: {name}: ")
    assert words in said
    assert "it is tried again until it succeeds" in said
    assert (rest, running.returncode) == ("", 0)


def test_a_zookeeper_is_no_source(zookeeper, other, tmp_path):
    line = command("source", zookeeper.address, other, {}, tmp_path)
    with subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as running:
        said = running.stderr.readline()
        running.terminate()
    assert said.startswith("millrace: source n: ")
    assert "no broker of Kafka's protocol" in said


def test_a_wrong_password_is_not_tried_without_pause(guarded, other, tmp_path):
    """Who mirrors on is told once, though the password is tried again and again."""
    line = command("source", guarded.addresses["SCRAM"], other, guarded.properties("SCRAM", "wrong"), tmp_path)
    with subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as running:
        said = running.stderr.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(3)
        running.terminate()
        assert running.stderr.read() == ""
    assert "sasl.jaas.config" in said
