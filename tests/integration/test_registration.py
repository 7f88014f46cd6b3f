"""Delta tables are entered in catalogs of other engines, which never costs a commit."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest

from millrace.client import Admin, Cluster, SyncProducer
from millrace.fs import OsFileSystem
from millrace.records.record import NewRecord
from millrace_ops.cli.app import app
from millrace_pipelines.warehouse.errors import AddressError, RegistrationError
from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.ledger.ledger import ledger_of
from millrace_pipelines.warehouse.load.options import LoadOptions
from millrace_pipelines.warehouse.registration import targets
from millrace_pipelines.warehouse.registration.targets import register
from millrace_support.command_runner import CommandRunner
from millrace_support.hive_metastore import hive_metastore
from millrace_support.iceberg_catalogs import AWS, glue_server
from millrace_support.stores.racing_loads import load_here
from millrace_support.unity_face import TOKEN, unity

FS = OsFileSystem()
ENVELOPE = (
    ("topic", "string"), ("partition", "int"), ("offset", "bigint"), ("timestamp", "timestamp"), ("key", "binary"),
    ("value", "binary"), ("headers", "array<struct<key:string,value:binary>>"),
)  # fmt: skip


@contextmanager
def _hive(folder):
    with hive_metastore(folder) as uri:
        yield f"hive:{uri}/shop."


@contextmanager
def _glue(folder):
    with glue_server() as endpoint, pytest.MonkeyPatch.context() as patch:
        for name, value in {**AWS, "AWS_ENDPOINT_URL_GLUE": endpoint}.items():
            patch.setenv(name, value)
        yield "glue:shop."


@contextmanager
def _unity(folder):
    with unity() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNITY_CATALOG_TOKEN", TOKEN)
        yield f"unity:http://127.0.0.1:{server.server_port}/lake.shop."


@pytest.fixture(scope="module", params=[_hive, _glue, _unity])
def names(request, tmp_path_factory):
    """What the names in a catalog begin with."""
    with request.param(tmp_path_factory.mktemp("catalog")) as prefix:
        yield prefix


@pytest.fixture
def options(broker, tmp_path):
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("events", 1)
        SyncProducer(cluster).send("events", 0, [NewRecord(b'{"id": 1}')] * 3)
    return LoadOptions(topic="events", table=str(tmp_path / "events"), bootstrap=broker.bootstrap)


def entry(target):
    return targets._catalog(target).find()


def with_schema(options, folder: Path):
    (folder / "schema.json").write_text(json.dumps({"fields": [{"name": "id", "type": "long"}]}))
    return LoadOptions(**{**vars_of(options), "schema": str(folder / "schema.json")})


def vars_of(options):
    return {name: getattr(options, name) for name in options.__dataclass_fields__}


def test_a_load_enters_its_table_and_again_where_columns_have_come(names, options, tmp_path):
    target = f"{names}grown"
    first = load_here(LoadOptions(**{**vars_of(options), "register": target}))
    assert (first.rows, first.register_error) == (3, None)
    found = entry(target)
    assert found.location.removeprefix("file:").replace("//", "") == options.table
    assert found.columns == ENVELOPE
    typed = with_schema(options, tmp_path)
    assert load_here(LoadOptions(**{**vars_of(typed), "register": target})).register_error is None
    assert entry(target).columns == (*ENVELOPE, ("id", "bigint"))
    assert register(options.table, target) is False


def test_a_name_of_another_table_is_left_alone(names, options, tmp_path):
    target, other = f"{names}taken", LoadOptions(**{**vars_of(options), "table": str(tmp_path / "other")})
    load_here(LoadOptions(**{**vars_of(other), "register": target}))
    report = load_here(LoadOptions(**{**vars_of(options), "register": target}))
    assert report.rows == 3
    assert "another table has this name" in report.register_error
    assert entry(target).location.endswith("/other")


def test_a_failed_entry_loses_no_commit_and_the_next_load_makes_up_for_it(options, monkeypatch):
    monkeypatch.setenv("UNITY_CATALOG_TOKEN", TOKEN)
    with unity() as server:
        target = f"unity:http://127.0.0.1:{server.server_port}/lake.shop.events"
        options = LoadOptions(**{**vars_of(options), "register": target})
        server.is_well = False
        report = load_here(options)
        assert (report.rows, report.version) == (3, 1)
        assert "503" in report.register_error
        assert ledger_of(load_table(options.table, FS)).next_offset(0) == 3
        server.is_well = True
        report = load_here(options)
        assert (report.rows, report.register_error) == (0, None)
        assert server.tables["lake.shop.events"]["data_source_format"] == "DELTA"


def test_the_command_says_what_it_did(options, monkeypatch):
    monkeypatch.setenv("UNITY_CATALOG_TOKEN", TOKEN)
    load_here(options)
    with unity() as server:
        target = f"unity:http://127.0.0.1:{server.server_port}/lake.shop.events"
        said = [CommandRunner().invoke(app, ["warehouse", "register", options.table, target]).output for _ in range(2)]
    assert said == [f"{target}: entered\n", f"{target}: was entered already\n"]


@pytest.mark.parametrize("target", ["glue:events", "hive:shop.events", "nowhere:shop.events", "unity:https://h/a.b"])
def test_what_is_no_name_in_a_catalog_is_refused_before_a_load(target, options):
    with pytest.raises(AddressError, match="a table is entered in a catalog as"):
        load_here(LoadOptions(**{**vars_of(options), "register": target}))
    with pytest.raises(AddressError, match="is in its catalog by itself"):
        load_here(LoadOptions(**{**vars_of(options), "register": "glue:a.b", "table": "iceberg:shop.events"}))


def test_a_catalog_that_is_not_there_is_said_in_a_sentence(options):
    load_here(options)
    with pytest.raises(RegistrationError, match="can't be asked"):
        register(options.table, "hive:thrift://127.0.0.1:1/shop.events")
