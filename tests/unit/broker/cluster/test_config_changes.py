"""What each operation of IncrementalAlterConfigs makes of a configuration."""

import pytest

from millrace.errors import InvalidConfigError, InvalidRequestError
from millrace_broker.cluster.config_sources import Operation, OperationType, apply_operations
from millrace_broker.storage.config import TOPIC_CONFIG

SET, DELETE, APPEND, SUBTRACT = OperationType


@pytest.mark.parametrize(
    ("before", "operation", "after"),
    [
        ({}, ("retention.ms", SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "5"}, ("retention.ms", SET, "6"), {"retention.ms": "6"}),
        ({"retention.ms": "5", "x": "y"}, ("retention.ms", DELETE, None), {"x": "y"}),
        ({}, ("retention.ms", DELETE, None), {}),
        ({}, ("nobody.knows.it", DELETE, None), {}),
        ({}, ("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        ({"cleanup.policy": "compact"}, ("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "compact"}),
        ({"cleanup.policy": ""}, ("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "compact"}),
        ({"cleanup.policy": "compact,delete"}, ("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": "compact"}),
        ({}, ("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": ""}),
        (
            {},
            ("leader.replication.throttled.replicas", APPEND, "0:1"),
            {"leader.replication.throttled.replicas": "0:1"},
        ),
    ],
)
def test_an_operation(before, operation, after):
    assert apply_operations(before, TOPIC_CONFIG.keys, [Operation(*operation)]) == after


def test_operations_follow_one_another_and_leave_the_original_alone():
    before = {"cleanup.policy": "delete"}
    operations = [Operation("cleanup.policy", APPEND, "compact"), Operation("retention.ms", SET, "1")]
    after = apply_operations(before, TOPIC_CONFIG.keys, operations)
    assert after == {"cleanup.policy": "delete,compact", "retention.ms": "1"}
    assert before == {"cleanup.policy": "delete"}


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (("retention.ms", APPEND, "1"), InvalidConfigError),
        (("retention.ms", SUBTRACT, "1"), InvalidConfigError),
        (("nobody.knows.it", APPEND, "1"), InvalidConfigError),
        (("retention.ms", SET, None), InvalidRequestError),
        (("retention.ms", 9, "1"), InvalidRequestError),
    ],
)
def test_a_refused_operation_names_the_property(operation, error):
    with pytest.raises(error, match=operation[0].replace(".", r"\.")):
        apply_operations({}, TOPIC_CONFIG.keys, [Operation(*operation)])
