import pytest

from millrace.zk import paths


def test_the_names_are_kafkas():
    assert paths.broker(7) == "/brokers/ids/7"
    assert paths.partition_state("t", 3) == "/brokers/topics/t/partitions/3/state"
    assert paths.topic_config("t") == "/config/topics/t"
    assert paths.broker_config("<default>") == "/config/brokers/<default>"
    assert paths.CONFIG_CHANGE == "/config/changes/config_change_"
    assert paths.delete_topic("t") == "/admin/delete_topics/t"
    assert paths.CLUSTER_ID == "/cluster/id"


@pytest.mark.parametrize(
    ("path", "topic"),
    [
        (paths.topic("a.b"), "a.b"),
        (paths.partitions("a"), "a"),
        (paths.partition_state("a", 12), "a"),
        (paths.topic_config("a"), "a"),
        (paths.TOPICS, None),
        (paths.TOPIC_CONFIGS, None),
        (paths.broker(1), None),
        (paths.broker_config("1"), None),
        (paths.delete_topic("t"), None),
    ],
)
def test_which_topic_a_path_is_about(path, topic):
    assert paths.topic_of(path) == topic
