"""The parts of the load benchmark: what they measure is done, and to the records that they name."""

import json

import pytest

from millrace.client import Cluster, SimpleConsumer
from millrace.records.compression import Codec
from millrace_benchmarks.in_store import loads_in
from millrace_benchmarks.load_commits import commit_after
from millrace_benchmarks.load_stages import stages, task
from millrace_benchmarks.load_topics import RECORDS_PER_BATCH, Topic, batches_of, fill
from millrace_benchmarks.upsert import run_in
from millrace_pipelines.machine import DISK
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.stores.options import VARIABLE, use_store_options
from millrace_support.stores.stand_ins import moto

RECORDS = 4 * RECORDS_PER_BATCH


@pytest.mark.parametrize("topic", [Topic("small", "100 B", 100, 8), Topic("lz4", "100 B", 100, 8, Codec.LZ4)])
def test_stages_and_a_task_of_a_filled_topic(broker, topic):
    fill(broker.bootstrap, topic, batches_of(topic))
    with Cluster(broker.bootstrap) as cluster:
        ends = [SimpleConsumer(cluster).latest(topic.name, partition) for partition in (0, 1)]
    assert ends == [RECORDS, RECORDS]
    assert sum(ends) == topic.records
    assert set(stages(broker.bootstrap, topic)) == {"fetch", "decode", "write"}
    run = task(broker.bootstrap, topic, RECORDS)
    assert run.value_bytes == RECORDS * 100
    assert run.peak_bytes > run.value_bytes


@pytest.mark.usefixtures("warm_loads")
def test_loads_into_a_store_are_measured_and_removed(tmp_path):
    with moto() as store:
        use_store_options({store.address: store.options})
        figures = loads_in(tmp_path, f"{store.address}/bench", [Topic("small", "100 B", 100, 8)])
        assert [figure.unit for figure in figures] == ["rows/s", "rows/s"]
        assert all(figure.value > 0 for figure in figures)
        assert figures[0].ratio == figures[0].value / figures[0].yardstick_value
        assert store_at(f"{store.address}/bench", DISK).names() == []
    use_store_options({})


def test_upserts_in_a_store_are_measured_and_removed(tmp_path, monkeypatch):
    with moto() as store:
        options = tmp_path / "stores.json"
        options.write_text(json.dumps({store.address: store.options}))
        monkeypatch.setenv(VARIABLE, str(options))  # for the processes of the upserts, too
        use_store_options(None)
        figures = run_in(tmp_path, f"{store.address}/bench", keys=4_000)
        assert [figure.unit for figure in figures] == ["keys/s"] * 6
        assert all(figure.value > 0 for figure in figures)
        assert store_at(f"{store.address}/bench", DISK).names() == []
    use_store_options({})


def test_a_late_commit_is_measured():
    assert set(commit_after(3)) == {"load", "commit"}
