"""Options of stores: whose they are, where they come from, and that none of their values is shown."""

import json

import pytest
from obstore.exceptions import UnknownConfigurationKeyError
from pyspark import cloudpickle

from millrace.errors import SetupError
from millrace_pipelines.warehouse.errors import AddressError
from millrace_pipelines.warehouse.stores.bucket import opened
from millrace_pipelines.warehouse.stores.option_names import CLIENT, EVERY, NAMES, NO_LOCK, is_secret
from millrace_pipelines.warehouse.stores.options import (
    VARIABLE,
    StoreOptions,
    carrying,
    declare_store_options,
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
    file.write_text(json.dumps({"s3://lake": {"AWS_REGION": "eu-1", "aws_token": "env:TOKEN"}}))
    monkeypatch.setenv("TOKEN", "hush")
    assert store_options() == {}
    use_store_options(None)
    monkeypatch.setenv(VARIABLE, str(file))
    assert store_options().of("s3://lake/t") == {"aws_region": "eu-1", "aws_token": "hush"}


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
    assert parsed_options(["AWS_Token=a=b"]) == {"aws_token": "a=b"}


def test_a_setting_of_hadoop_keeps_its_capitals(tmp_path):
    file = tmp_path / "stores.json"
    file.write_text(json.dumps({"hdfs://lake": {"fs.defaultFS": "hdfs://lake"}}))
    assert read_options(str(file)).of("hdfs://lake/t") == {"fs.defaultFS": "hdfs://lake"}
    assert parsed_options(["fs.defaultFS=x"]) == {"fs.defaultFS": "x"}


@pytest.mark.parametrize(
    ("prefix", "name", "words"),
    [
        ("s3://lake", "aws_regon", "s3://lake: there is no option aws_regon of a store; did you mean aws_region?"),
        (
            "s3://lake",
            "region",
            "s3://lake: there is no option region of a store; did you mean aws_region?",
        ),  # of which obstore panics
        ("gs://lake", "aws_region", "gs://lake: there is no option aws_region of a store"),
        ("abfss://c@a", "azure_acount", "abfss://c@a: there is no option azure_acount of a store"),
        ("hdfs://h", "replication", "hdfs://h: there is no option replication of a store"),
        ("s3://lake", "fs.defaultFS", "s3://lake: there is no option fs.defaultFS of a store"),
        ("s3://lake", "AWS_S3_LOCKING_PROVIDER", f"s3://lake: aws_s3_locking_provider: {NO_LOCK}"),
        ("s4://lake", "aws_region", "s4://lake: no address of a store begins so; did you mean s3://?"),
        ("/srv", "aws_region", "/srv: no address of a store begins so"),
    ],
)
def test_an_option_that_no_store_has_is_refused(tmp_path, prefix, name, words):
    file = tmp_path / "stores.json"
    file.write_text(json.dumps({prefix: {name: "hush"}}))
    with pytest.raises(SetupError) as refused:
        read_options(str(file))
    assert str(refused.value) == f"{file}: {words}"


def test_an_option_of_the_command_line_that_no_store_has_is_refused():
    with pytest.raises(SetupError, match=r"^there is no option aws_regon of a store; did you mean aws_region\?$"):
        parsed_options(["aws_regon=x"])


@pytest.mark.parametrize("name", sorted(EVERY - CLIENT))
def test_each_option_is_one_that_the_store_s_client_knows(name):
    scheme = next(one for one, names in NAMES.items() if name in names)
    address = "abfss://c@a.dfs.core.windows.net" if scheme == "abfss" else f"{scheme}://lake"
    cause = None
    try:
        opened(address, ((name, "true"),), ())
    except AddressError as refused:  # of the value, not of the name
        cause = refused.__cause__
    assert not isinstance(cause, UnknownConfigurationKeyError)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *((name, True) for name in (
            "aws_secret_access_key", "aws_session_token", "aws_token", "aws_sse_customer_key_base64",
            "google_service_account_key", "google_bearer_token", "azure_storage_account_key",
            "azure_storage_access_key", "azure_storage_sas_key", "azure_storage_sas_token", "azure_client_secret",
        )),
        *((name, False) for name in (
            "aws_access_key_id", "aws_region", "aws_endpoint_url", "aws_web_identity_token_file",
            "google_service_account", "azure_storage_account_name", "azure_federated_token_file",
        )),
    ],
)  # fmt: skip
def test_which_options_are_secrets(name, secret):
    assert name in EVERY
    assert is_secret(name) is secret


def test_what_is_declared_goes_before_the_environment_and_after_the_command_line(monkeypatch):
    monkeypatch.setenv("KEY", "hush")
    use_store_options({"s3://lake": {"aws_region": "environment"}, "gs://": {"timeout": "1"}}, {"user_agent": "mine"})
    declare_store_options({"s3://lake": {"aws_region": "declared", "user_agent": "theirs", "aws_token": "env:KEY"}})
    assert store_options().of("s3://lake") == {"aws_region": "declared", "user_agent": "mine", "aws_token": "hush"}
    assert store_options().of("gs://x") == {"timeout": "1", "user_agent": "mine"}


def test_a_variable_that_is_not_set_is_named(monkeypatch):
    monkeypatch.delenv("KEY", raising=False)
    with pytest.raises(SetupError, match=r"^s3://lake: aws_token: the environment variable KEY is not set$"):
        declare_store_options({"s3://lake": {"aws_token": "env:KEY"}})


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
