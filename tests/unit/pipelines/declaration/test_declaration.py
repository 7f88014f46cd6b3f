"""What a `defs.yaml` may say, and the line, field and words for what it may not."""

import os
from datetime import timedelta
from importlib import import_module, invalidate_caches

import pytest
import yaml
from dagster.components.core.component_tree import ComponentTree
from pydantic import ValidationError

from millrace.errors import PlatformError
from millrace_pipelines.declaration.attributes import (
    ClusterDeclaration,
    TableDeclaration,
    Undeclared,
)
from millrace_pipelines.declaration.faults import declaration_errors
from millrace_pipelines.definitions import MillraceComponent
from millrace_pipelines.defs.alert_sensor import webhook_of
from millrace_pipelines.warehouse.choices import Mode

WRONG = [
    # attributes, the line in the file, field: words
    ("tables:\n  - topic: flights\n    partitions: 0", 5, "tables.0.partitions: Input should be greater than or equal"),
    ("tables:\n  - topic: flights\n    moode: append", 5, "tables.0.moode: there is no such field"),
    ("tables:\n  - topic: flights\n    mode: merge", 5, "tables.0.mode: Input should be 'append' or 'upsert'"),
    ("tables:\n  - topic: flights\n    freshness: 15", 5, "tables.0.freshness: expected a duration such as 90s"),
    ("tables:\n  - topic: flights\n    freshness: soon", 5, "tables.0.freshness: expected a duration such as 90s"),
    ("tables:\n  - topic: flights\n    freshness: 0m", 5, "tables.0.freshness: expected a duration such as 90s"),
    ("tables:\n  - topic: flights\n    schedule: hourly at noon", 5, "tables.0.schedule: expected a cron schedule"),
    ("tables:\n  - topic: flights\n    lag_bound: -1", 5, "tables.0.lag_bound: Input should be greater than or equal"),
    ("tables:\n  - topic: flights\n    isolation: none", 5, "tables.0.isolation: Input should be 'read_committed'"),
    ("tables:\n  - topic: flights\n    compression: rar", 5, "tables.0.compression: Input should be 'lz4'"),
    ("tables:\n  - topic: a/b", 4, "tables.0.topic: String should match pattern"),
    ("tables:\n  - topic: flights\n    max_dead_letter_share: 5", 5, "tables.0.max_dead_letter_share: Input should be"),
    ("tables:\n  - topic: flights\n    asset_group: A b", 5, "tables.0.asset_group: String should match pattern"),
    ("tables:\n  - pattern: (", 4, "tables.0.pattern: not a regular expression: missing )"),
    ("tables:\n  - mode: append", 4, "tables.0: expected either a topic or a pattern"),
    ("tables:\n  - topic: a\n    pattern: b", 4, "tables.0: expected either a topic or a pattern"),
    ("tables:\n  - pattern: b.*\n    partitions: 3", 4, "tables.0: partitions and config are for a topic by name"),
    ("tables:\n  - pattern: b.*\n    table: lake", 4, "tables.0: the table of a pattern needs {topic} in its path"),
    ("tables:\n  - topic: a\n    schedule: '@daily'\n    lag_bound: 1", 4, "tables.0: expected a schedule or a lag"),
    ("tables:\n  - topic: a\n  - topic: a", 2, "attributes: declared more than once: a"),
    ("cluster: Main-1", 3, "cluster: String should match pattern"),
    ("undeclared_topics: maybe", 3, "undeclared_topics: Input should be 'ignore', 'observe' or 'load'"),
    ("bootstraps: localhost:9092", 3, "bootstraps: there is no such field"),
    ("tables:\n  - topic: a\n    owners: [ann]", 5, "tables.0.owners.0: expected an owner such as ann@example.org"),
    ("tables:\n  - topic: a\n    blocking_checks: [lags]", 5, "tables.0.blocking_checks.0: Input should be"),
    ("tables:\n  - topic: a\n    tags: {a b: c}", 5, "tables.0.tags: "),
    ("reload_since: yesterday", 3, "reload_since: Input should be a valid date"),
    ("webhook: 5", 3, "webhook: Input should be a valid string"),
    ("webhook: ftp://h/key", 3, "webhook: expected an http or https URL"),
    ("tables: flights", 3, "tables: Input should be a valid array"),
    ("stores: {s3://lake: {aws_regon: x}}", 3, "stores: s3://lake: there is no option aws_regon of a store; did you"),
    ("stores: {'': {aws_regon: x}}", 3, "stores: there is no option aws_regon of a store; did you mean aws_region?"),
    (
        "stores: {s4://lake: {aws_region: x}}",
        3,
        "stores: s4://lake: no address of a store begins so; did you mean s3://",
    ),
    ("stores: {gs://lake: {aws_region: x}}", 3, "stores: gs://lake: there is no option aws_region of a store"),
    ("stores: {s3://lake: {aws_secret_access_key: hush}}", 3, "stores: s3://lake: aws_secret_access_key is a secret: "),
    ("stores: {s3://lake: {aws_token: '{{ env.T }}'}}", 3, "stores: s3://lake: aws_token is a secret: write env:NAME"),
    ("stores: {s3://lake: eu-central-1}", 3, "stores.s3://lake: Input should be an object"),
]


def declared(text):
    return ClusterDeclaration.model_validate(yaml.safe_load(text) or {})


@pytest.fixture
def component_of(tmp_path, monkeypatch):
    """Loads the component of a file with these attributes, as Dagster does."""
    folder = tmp_path / "declared_definitions" / "lake"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "declared_definitions", raising=False)

    def load(attributes):
        lines = "".join(f"  {line}\n" for line in attributes.splitlines())
        (folder / "defs.yaml").write_text(f"type: millrace_pipelines.MillraceComponent\nattributes:\n{lines}")
        invalidate_caches()
        tree = ComponentTree.from_module(import_module("declared_definitions"), project_root=tmp_path)
        (component,) = tree.get_all_components(of_type=MillraceComponent)
        return component

    return load


@pytest.mark.parametrize(("attributes", "line", "words"), WRONG, ids=lambda value: str(value)[-30:])
def test_what_is_wrong_is_told_with_its_line_and_field(component_of, tmp_path, attributes, line, words):
    with pytest.raises(Exception) as refused:
        component_of(attributes)
    (told,) = declaration_errors(refused.value)
    assert told.startswith(f"{tmp_path}/declared_definitions/lake/defs.yaml:{line}: {words}")


def test_each_wrong_field_is_told(component_of):
    with pytest.raises(Exception) as refused:
        component_of("cluster: A\ntables:\n  - topic: a\n    mode: b\n  - topic: c\n    lag_bound: 0")
    assert [line.split(": ")[1] for line in declaration_errors(refused.value)] == [
        "cluster", "tables.0.mode", "tables.1.lag_bound",
    ]  # fmt: skip


def test_other_errors_are_none_of_a_declaration():
    assert declaration_errors(OSError("no such file")) == []


def test_templates_are_resolved(component_of, monkeypatch):
    monkeypatch.setenv("LAKE_BROKER", "10.0.0.1:9092")
    component = component_of('bootstrap: "{{ env.LAKE_BROKER }}"\ntables:\n  - topic: flights\n    schema: f.json')
    assert component.declaration.bootstrap == "10.0.0.1:9092"
    assert component.declaration.tables[0].schema_file == "f.json"


def test_a_file_without_attributes_has_the_defaults():
    declaration = declared("")
    assert (declaration.cluster, declaration.undeclared_topics, declaration.tables) == (
        "millrace", Undeclared.OBSERVE, (),
    )  # fmt: skip


def test_values_have_their_types():
    (table,) = declared("tables: [{topic: a, freshness: 6h, mode: upsert}]").tables
    assert (table.freshness, table.mode) == (timedelta(hours=6), Mode.UPSERT)


@pytest.mark.parametrize(("text", "duration"), [("90s", 90), ("15 m", 900), ("1d", 86400)])
def test_durations(text, duration):
    (table,) = declared(f"tables: [{{topic: a, freshness: {text}}}]").tables
    assert table.freshness.total_seconds() == duration
    resolved = table.model_dump(by_alias=True)  # as a component's fields are while templates are resolved
    assert TableDeclaration.model_validate(resolved) == table


@pytest.mark.parametrize(
    "url",
    ["https://hooks.example.org/services/T0/B0/key", "http://127.0.0.1:8080", "http://[::1]:80/a?b=c", "{{ env.A }}"],
)
def test_a_webhook_is_an_address_or_a_template(url):
    assert declared(f'webhook: "{url}"').webhook == url


@pytest.mark.parametrize(
    "url",
    ["", "secret", "ftp://h/secret", "https:///secret", "http://h:secret/", "http://[secret/", "http://h/a secret"],
)
def test_what_is_no_webhook_is_refused_and_not_shown(url):
    with pytest.raises(ValidationError, match="expected an http or https URL") as refused:
        declared(f'webhook: "{url}"')
    assert "secret" not in str(refused.value)


def test_options_of_stores_are_texts_with_secrets_by_name():
    text = "stores: {s3://lake: {allow_http: true, timeout: 5, aws_secret_access_key: 'env:KEY'}, hdfs://h: {dfs.A: b}}"
    options = {"allow_http": "true", "timeout": "5", "aws_secret_access_key": "env:KEY"}
    assert declared(text).stores == {"s3://lake": options, "hdfs://h": {"dfs.A": "b"}}


@pytest.mark.parametrize("also", ["", "tables: [{topic: a}, {topic: a}]"])
@pytest.mark.parametrize("value", ["hush", "{{ env.hush }}"])
def test_a_secret_of_a_store_is_refused_and_not_shown(value, also):
    with pytest.raises(ValidationError) as refused:
        declared(f"stores: {{s3://lake: {{aws_secret_access_key: '{value}'}}}}\n{also}")
    assert "hush" not in str(refused.value)


def test_no_error_of_another_field_shows_the_webhook():
    with pytest.raises(ValidationError, match="more than once") as refused:
        declared("webhook: http://h/secret\ntables: [{topic: a}, {topic: a}]")
    assert "secret" not in str(refused.value)
    assert "secret" not in repr(declared("webhook: http://h/secret"))


@pytest.mark.parametrize(
    ("attributes", "variable", "webhook"),
    [
        ("{}", None, None),
        ("{}", "", None),
        ("{}", "http://b", "http://b"),
        ("webhook: http://a", "http://b", "http://a"),
        ('webhook: "{{ env.HOOK }}"', "http://b", "http://c"),
    ],
)
def test_the_webhook_is_that_of_the_file_or_of_the_environment(
    component_of, monkeypatch, attributes, variable, webhook
):
    monkeypatch.setenv("HOOK", "http://c")
    monkeypatch.delenv("MILLRACE_WEBHOOK", raising=False)
    if variable is not None:
        monkeypatch.setenv("MILLRACE_WEBHOOK", variable)
    assert webhook_of(component_of(attributes).declaration.webhook, os.environ) == webhook


def test_a_variable_that_has_no_address_is_named():
    with pytest.raises(PlatformError, match=r"^MILLRACE_WEBHOOK: expected an http or https URL") as refused:
        webhook_of(None, {"MILLRACE_WEBHOOK": "secret"})
    assert "secret" not in str(refused.value)
