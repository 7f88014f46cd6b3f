"""What a platform tells its brokers' console: the tables, and where Dagster is."""

import pytest

from millrace.clock import SystemClock
from millrace.fs import OsFileSystem
from millrace_ops.supervisor.brokers import broker_places
from millrace_ops.supervisor.platform import Platform, PlatformOptions


def told(tmp_path, **given):
    options = PlatformOptions(directory=str(tmp_path), console=True, **given)
    [place] = broker_places(1, options.listen, options.admin, None)
    own = Platform(options, OsFileSystem(), SystemClock())._own_properties(place)
    return {name: value for name, value in own.items() if name.startswith("admin.console")}


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, "http://127.0.0.1:3000"),
        ({"dagster_port": 3300}, "http://127.0.0.1:3300"),
        ({"dagster_host": "0.0.0.0"}, "http://127.0.0.1:3000"),
        ({"dagster_port": None}, None),
        ({"dagster_port": 0}, None),
        ({"broker_properties": {"admin.console.dagster.url": "https://elsewhere"}}, None),
    ],
)
def test_the_console_is_told_where_dagster_is_unless_the_operator_says_it(tmp_path, given, url):
    assert told(tmp_path, **given).get("admin.console.dagster.url") == url


def test_the_console_is_read_only_and_has_the_platforms_tables(tmp_path):
    found = told(tmp_path)
    assert found["admin.console"] == "read-only"
    assert found["admin.console.warehouse"] == str(tmp_path / "warehouse")
