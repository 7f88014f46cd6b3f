"""What is seen of topics while brokers fail."""

import pytest

from millrace.errors import AnswerLostError, BrokerUnreachableError, InvalidTopicError
from millrace_pipelines.mirror.topic_view import properties_of


class Configs:
    """Answers for all topics but `bad`, for which it has an error."""

    def __init__(self, error):
        self.error = error
        self.asked = []

    def describe_topics(self, names):
        self.asked.append(list(names))
        if "bad" in names:
            raise self.error
        return {one: {} for one in names}


def test_a_topic_whose_properties_can_not_be_seen_is_left_out_alone():
    configs = Configs(InvalidTopicError("no topic"))
    denied = []
    found = properties_of(configs, ["a", "bad", "c"], lambda name, error: denied.append((name, error)))
    assert (found, denied) == ({"a": {}, "c": {}}, [("bad", configs.error)])


@pytest.mark.parametrize("error", [BrokerUnreachableError("nobody answers"), AnswerLostError("reset")])
def test_a_broker_that_is_away_is_no_fault_of_topics(error):
    configs = Configs(error)
    with pytest.raises(BrokerUnreachableError):
        properties_of(configs, ["a", "bad", "c"], pytest.fail)
    assert configs.asked == [["a", "bad", "c"]]
