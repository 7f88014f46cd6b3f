"""Which of a broker's logs are stray."""

from types import SimpleNamespace

from millrace.client.replicas import LogDir
from millrace.errors import ErrorCode
from millrace_ops.replicas.cluster_state import find_strays


def topic(*replicas, error_code=0):
    return SimpleNamespace(
        error_code=error_code,
        partitions={index: SimpleNamespace(replicas=one) for index, one in enumerate(replicas)},
    )


def strays(topics, *logs):
    log_dirs = [LogDir("/one", 0, None, None, dict.fromkeys(logs, 7))]
    found = find_strays(1, log_dirs, SimpleNamespace(topics=topics))
    assert {(one.broker, one.directory, one.bytes) for one in found} <= {(1, "/one", 7)}
    return [(one.topic, one.partition, one.reason) for one in found]


def test_replicas_are_not_stray():
    assert strays({"t": topic((1, 2), (2, 1))}, ("t", 0), ("t", 1)) == []


def test_logs_that_the_cluster_does_not_assign_here_are():
    assert strays({"t": topic((2, 3))}, ("t", 1), ("t", 0), ("gone", 0)) == [
        ("gone", 0, "no such topic"),
        ("t", 0, "on other brokers"),
        ("t", 1, "no such partition"),
    ]


def test_logs_of_a_topic_that_can_t_be_told_of_are_left_out():
    assert strays({"t": topic(error_code=ErrorCode.LEADER_NOT_AVAILABLE)}, ("t", 0)) == []
