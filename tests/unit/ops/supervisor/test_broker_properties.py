"""The properties that `millrace up` takes for its broker, and what is said of wrong ones."""

import pytest

from millrace.errors import InvalidConfigError
from millrace_ops.supervisor.platform import broker_properties


@pytest.fixture
def file(tmp_path):
    return tmp_path / "broker.properties"


def test_assignments_override_the_file(file):
    file.write_text("num.partitions=3\nlog.retention.ms=1000\n")
    assert broker_properties(file, ["num.partitions=4"]) == {"num.partitions": "4", "log.retention.ms": "1000"}
    assert broker_properties(None, []) == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("num.partitions=many", "FILE:2: Invalid value many for configuration num.partitions: "),
        ("listeners=PLAINTEXT://:1", "FILE:2: listeners=PLAINTEXT://:1: give --listen instead"),
        ("log.dirs=/data", "FILE:2: log.dirs=/data: give --dir instead"),
        ("zk.connect=zk:2181", "FILE:2: zookeeper.connect=zk:2181: give --zookeeper instead"),
        ("node.id=7", "FILE:2: broker.id=7: the brokers of a platform have the ids 1, 2, …"),
        ("sasl.kerberos.service.name=kafka", "FILE:2: sasl.kerberos.service.name"),
    ],
)
def test_an_error_names_line_and_key(file, line, message):
    file.write_text(f"# mine\n{line}\n")
    with pytest.raises(InvalidConfigError) as raised:
        broker_properties(file, [])
    assert str(raised.value).startswith(message.replace("FILE", str(file)))


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("num.partition=3", "unknown property num.partition; did you mean num.partitions?"),
        ("num.partitions", "num.partitions"),
        ("advertised.listeners=PLAINTEXT://host:1", "give --advertised instead"),
        ("log.cleanup.policy=sometimes", "sometimes for configuration log.cleanup.policy"),
    ],
)
def test_an_error_of_an_assignment_names_the_key(assignment, message):
    with pytest.raises(InvalidConfigError, match=message.replace("?", r"\?")):
        broker_properties(None, [assignment])


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InvalidConfigError, match="No such file"):
        broker_properties(tmp_path / "missing", [])


def test_a_hardened_listener_s_properties_are_taken_for_it_alone():
    given = ["connections.max.reauth.ms=1000"]
    assert broker_properties(None, given, secure=True) == {"connections.max.reauth.ms": "1000"}
    with pytest.raises(InvalidConfigError, match="no listener has SASL"):
        broker_properties(None, given)
