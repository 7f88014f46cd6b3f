"""Both sides of a mirror are reached with credentials of their own."""

import pytest

from millrace.testing.local_broker import LocalBroker
from millrace_pipelines.mirror.settings import Way
from millrace_pipelines.mirror.settings_file import read_settings
from millrace_pipelines.mirror.states import States, TopicState


@pytest.fixture(scope="module")
def brokers():
    with LocalBroker(security="SASL_SSL") as source, LocalBroker(security="SASL_PLAINTEXT") as target:
        yield source, target


def test_each_side_has_its_own_security(brokers, tmp_path):
    source, target = brokers
    client_config = tmp_path / "target.properties"
    lines = [f"{name}={value}\n" for name, value in target.client_properties.items()]
    client_config.write_text("".join(lines), encoding="utf-8")
    settings = read_settings(
        None,
        {
            "sources": [{"name": "a", "bootstrap": source.bootstrap, "properties": dict(source.client_properties)}],
            "target": {"bootstrap": target.bootstrap, "client_config": str(client_config)},
            "topics": ".*",
        },
    )
    with settings.sources[0].cluster() as at_source, settings.target.cluster() as at_target:
        assert at_source.metadata([]).cluster_id != at_target.metadata([]).cluster_id
        assert States(at_source).read() == {}
        with settings.target.producer(producer_type="async") as producer:
            states = States(at_target, producer)
            states.create()
            states.write(TopicState(source="a", topic="t", target_topic="a.t", way=Way.COPY))
            assert {*states.read()} == {"a/t"}
