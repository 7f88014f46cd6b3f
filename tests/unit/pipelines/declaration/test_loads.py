"""What `warehouse load --defs` makes of a file: the loads, what they are where the file is silent, and its faults."""

import pytest

from millrace.errors import SetupError
from millrace_pipelines.declaration.loads import declared_loads, read_declarations, spark_of
from millrace_pipelines.warehouse.choices import Compression, Mode

YAML = """\
type: millrace_pipelines.MillraceComponent
attributes:
  bootstrap: "{{ env.BROKER }}"
  warehouse: s3://lake/tables
  master: local[2,3]
  spark: {spark.executor.memory: 2g}
  tables:
    - topic: orders
      schema: orders.json
      mode: upsert
      columns: {a.b: c}
      schedule: "@daily"
    - topic: audit
      table: /srv/audit
      max_records_per_run: 7
      compression: zstd
---
type: dagster.DefsFolderComponent
"""
TOML = """\
undeclared_topics = "ignore"

[[tables]]
topic = "orders"
"""
OTHER = "type: millrace_pipelines.MillraceComponent\nattributes: {cluster: other, warehouse: w, master: local}\n"


@pytest.fixture
def write(tmp_path):
    def write(text, name="defs.yaml"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def loads_of(path, **variables):
    return [one for loads in declared_loads(path, "given:1", "given.properties", variables) for one in loads.options()]


def test_a_file_of_dagsters_says_what_is_loaded(write, tmp_path, monkeypatch):
    monkeypatch.setenv("BROKER", "there:9092")
    audit, orders = loads_of(write(YAML))
    assert (audit.table, audit.max_records_per_run, audit.compression) == ("/srv/audit", 7, Compression.ZSTD)
    assert (orders.table, orders.schema) == ("s3://lake/tables/orders", f"{tmp_path}/orders.json")
    assert (orders.bootstrap, orders.client_config, orders.mode) == ("there:9092", "given.properties", Mode.UPSERT)
    assert dict(orders.columns) == {"a.b": "c"}


def test_a_toml_file_has_the_same_fields_and_what_it_lacks_is_given(write):
    (orders,) = loads_of(write(TOML, "defs.toml"), MILLRACE_WAREHOUSE_DIR="/srv/lake")
    assert (orders.topic, orders.table, orders.bootstrap) == ("orders", "/srv/lake/orders", "given:1")


def test_one_session_serves_all_clusters_of_a_file(write, monkeypatch):
    monkeypatch.setenv("BROKER", "there:9092")
    path = write(YAML)
    loads = declared_loads(path, "b:1", None, {})
    assert spark_of(path, loads, {}) == {"spark.master": "local[2,3]", "spark.executor.memory": "2g"}
    path = write(f"{YAML}---\n{OTHER}")
    with pytest.raises(
        SetupError, match=r"one session has one spark.master, and the file names local\[2,3\] and local"
    ):
        spark_of(path, declared_loads(path, "b:1", None, {}), {})
    path = write(TOML, "defs.toml")
    named = {"MILLRACE_WAREHOUSE_DIR": "w", "MILLRACE_SPARK_MASTER": "spark://s:7077"}
    assert spark_of(path, declared_loads(path, "b:1", None, named), named) == {"spark.master": "spark://s:7077"}


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("a: [", "defs.yaml", r"defs.yaml:\d: "),
        ("type: dagster.Other\n", "defs.yaml", "no document is of the type millrace_pipelines.MillraceComponent"),
        ("", "defs.yaml", "no document is of the type"),
        (YAML.replace("mode: upsert", "mode: merge"), "defs.yaml", r"defs.yaml:10: tables.0.mode: Input should be"),
        (YAML.replace("topic: audit", "topik: audit"), "defs.yaml", r"defs.yaml:13: tables.1.topik: there is no such"),
        (YAML.replace("env.BROKER", "nonsense.BROKER"), "defs.yaml", r"defs.yaml.*nonsense"),
        ("tables = [", "defs.toml", "defs.toml: "),
        ("table = []", "defs.toml", r"defs.toml: table: there is no such field; did you mean tables"),
        (TOML.replace("topic", "topics"), "defs.toml", r"defs.toml: tables.0.topics: there is no such field"),
        (TOML, "defs.toml", "the cluster millrace has no warehouse, and MILLRACE_WAREHOUSE_DIR is not set"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(write, monkeypatch, text, name, words):
    monkeypatch.setenv("BROKER", "there:9092")
    with pytest.raises(SetupError, match=words):
        declared_loads(write(text, name), "b:1", None, {})


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SetupError, match=f"{tmp_path}/none.yaml: No such file"):
        read_declarations(f"{tmp_path}/none.yaml")
