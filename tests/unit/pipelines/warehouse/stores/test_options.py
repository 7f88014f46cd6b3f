"""Options of stores: whose they are, where they come from, and that none of their values is shown."""

import json

import pytest
from pyspark import cloudpickle

from millrace.errors import SetupError
from millrace_pipelines.warehouse.stores.options import (
    VARIABLE,
    StoreOptions,
    carrying,
    parsed_options,
    read_options,
    store_options,
    use_store_options,
)

BY_PREFIX = StoreOptions({"": {"region": "all"}, "s3://lake": {"region": "lake"}, "s3://lake/deep": {"region": "deep"}})


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    use_store_options(None)
    yield
    use_store_options(None)


@pytest.mark.parametrize(
    ("location", "region"),
    [("gs://other/t", "all"), ("s3://lake/t", "lake"), ("s3://lake/deep/t", "deep"), ("/srv/t", "all")],
)
def test_the_longest_prefix_has_the_options(location, region):
    assert BY_PREFIX.of(location) == {"region": region}


def test_an_option_for_all_goes_before_those_of_a_prefix():
    merged = BY_PREFIX.over({"region": "here", "key": "k"})
    assert merged.of("s3://lake/t") == merged.of("gs://other") == {"region": "here", "key": "k"}
    assert StoreOptions({"s3://": {"a": "1"}}).over({"b": "2"}).of("gs://x") == {"b": "2"}
    assert BY_PREFIX.over({}) == BY_PREFIX


def test_the_environment_names_a_file_of_options(monkeypatch, tmp_path):
    file = tmp_path / "stores.json"
    file.write_text(json.dumps({"s3://lake": {"AWS_REGION": "eu-1"}}))
    assert store_options() == {}
    use_store_options(None)
    monkeypatch.setenv(VARIABLE, str(file))
    assert store_options().of("s3://lake/t") == {"aws_region": "eu-1"}


@pytest.mark.parametrize("content", ["hush", '["hush"]', '{"s3://": "hush"}'])
def test_a_file_that_has_no_options_is_refused_without_its_content(tmp_path, content):
    file = tmp_path / "stores.json"
    file.write_text(content)
    with pytest.raises(SetupError, match="options of stores are JSON such as") as refused:
        read_options(str(file))
    assert "hush" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SetupError, match="can't be read: No such file"):
        read_options(str(tmp_path / "none"))


@pytest.mark.parametrize("pair", ["hush", "=hush"])
def test_an_option_without_a_name_is_refused_without_its_text(pair):
    with pytest.raises(SetupError, match="is written KEY=VALUE") as refused:
        parsed_options([pair])
    assert "hush" not in str(refused.value)
    assert parsed_options(["AWS_Secret=a=b"]) == {"aws_secret": "a=b"}


def test_a_setting_of_hadoop_keeps_its_capitals(tmp_path):
    file = tmp_path / "stores.json"
    file.write_text(json.dumps({"hdfs://lake": {"fs.defaultFS": "hdfs://lake"}}))
    assert read_options(str(file)).of("hdfs://lake/t") == {"fs.defaultFS": "hdfs://lake"}
    assert parsed_options(["fs.defaultFS=x"]) == {"fs.defaultFS": "x"}


def test_no_value_is_shown():
    assert (
        str(StoreOptions({"s3://lake": {"aws_secret_access_key": "hush"}}))
        == "{'s3://lake': ['aws_secret_access_key']}"
    )


def test_work_brings_the_options_to_where_it_runs():
    use_store_options({"s3://lake": {"aws_region": "eu-1"}})
    sent = cloudpickle.dumps(carrying(lambda batches: (store_options() for _ in batches)))
    use_store_options(None)
    [found] = cloudpickle.loads(sent)(iter([None]))
    assert found.of("s3://lake/t") == {"aws_region": "eu-1"}


def test_without_options_work_is_as_it_was():
    assert carrying(print) is print
