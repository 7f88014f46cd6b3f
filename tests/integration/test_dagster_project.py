"""The project of a platform: its definitions by the topics of a real broker, without one, and with a wrong file."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from millrace.client import Admin, Cluster
from millrace.errors import SetupError
from millrace_pipelines.definitions import load_project, refresh_project
from millrace_pipelines.project import DEFS_YAML, find_project, make_project, write_definitions

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose definitions can be loaded several times in this process."""
    make_project(str(tmp_path))
    monkeypatch.setattr("sys.path", sys.path[:])
    monkeypatch.setenv("MILLRACE_WAREHOUSE_DIR", str(tmp_path / "warehouse"))
    monkeypatch.setenv("MILLRACE_BOOTSTRAP", "127.0.0.1:1")

    def forget():
        for name in [name for name in sys.modules if name.split(".")[0] == "defs"]:
            monkeypatch.delitem(sys.modules, name)

    def load():
        forget()
        return load_project(str(tmp_path))

    def refresh():
        forget()
        refresh_project(str(tmp_path))

    load.refresh = refresh

    load.path = tmp_path
    return load


def tables(defs):
    keys = defs.resolve_asset_graph().get_all_asset_keys()
    return {key.path[-1] for key in keys if key.path[:2] == ["millrace", "table"]}


def test_topics_are_those_that_the_broker_had_when_it_was_last_asked(project, broker, monkeypatch):
    assert tables(project()) == set()
    with Cluster(broker.bootstrap) as cluster:
        for topic in ("flights", "orders"):
            Admin(cluster).create_topic(topic, 1)
        project.refresh()
        assert tables(project()) == set()
        monkeypatch.setenv("MILLRACE_BOOTSTRAP", broker.bootstrap)
        assert tables(project()) == set(), "loading asks no broker"
        project.refresh()
        assert tables(project()) == {"flights", "orders"}
        Admin(cluster).delete_topic("orders")
    project.refresh()
    assert tables(project()) == {"flights", "orders"}, "only the sensor, after two looks, removes a topic"
    broker.stop()
    project.refresh()
    assert tables(project()) == {"flights", "orders"}


def test_definitions_are_those_of_the_environment_that_was_last_looked_at(project, monkeypatch):
    def names(defs):
        repository = defs.get_repository_def()
        sensors = {sensor.name for sensor in repository.sensor_defs}
        return {"alerts_millrace"} & sensors, repository.asset_graph.has(dg.AssetKey(["millrace", "consumer_groups"]))

    assert names(project()) == (set(), False)
    monkeypatch.setenv("MILLRACE_ZOOKEEPER", "127.0.0.1:1")
    monkeypatch.setenv("MILLRACE_WEBHOOK", "http://127.0.0.1:1/secret")
    assert names(project()) == (set(), False), "loading reads no environment"
    project.refresh()
    assert names(project()) == ({"alerts_millrace"}, True)


def test_a_schema_of_the_platforms_folder_makes_dead_letters(project, monkeypatch):
    (project.path / "schemas").mkdir()
    (project.path / "schemas" / "flights.json").write_text("{}")
    monkeypatch.setenv("MILLRACE_SCHEMA_DIR", str(project.path / "schemas"))
    write_definitions(str(project.path), "cluster/defs.yaml", declared("tables: [{topic: flights}]"))
    project.refresh()
    assert project().resolve_asset_graph().has(dg.AssetKey(["millrace", "dead_letters", "flights"]))


def test_what_is_wrong_in_a_file_is_one_line_for_each_field(project):
    file = "cluster/defs.yaml"
    text = "tables:\n    - topic: a\n      freshness: soon\n    - topic: b\n      moode: append"
    write_definitions(str(project.path), file, declared(text))
    with pytest.raises(SetupError) as refused:
        project()
    place = project.path / "defs" / file
    assert str(refused.value).splitlines() == [
        f"{place}:5: tables.0.freshness: expected a duration such as 90s, 15m, 6h or 1d",
        f"{place}:7: tables.1.moode: there is no such field; did you mean mode?",
    ]


def test_what_is_there_stays_as_it_is(tmp_path):
    make_project(str(tmp_path))
    assert (tmp_path / "defs" / "cluster" / "defs.yaml").read_text() == DEFS_YAML
    (tmp_path / "defs" / "cluster" / "defs.yaml").unlink()
    (tmp_path / "dg.toml").write_text("# mine")
    make_project(str(tmp_path))
    assert list((tmp_path / "defs" / "cluster").iterdir()) == []
    assert (tmp_path / "dg.toml").read_text() == "# mine"


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """What a fresh clone has, as far as Dagster looks at it, without a variable of ours."""
    for name in [name for name in os.environ if name.startswith("MILLRACE_")]:
        monkeypatch.delenv(name)
    for name in ("pyproject.toml", "workspace.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    ignored = shutil.ignore_patterns(".local_defs_state", "__pycache__")
    shutil.copytree(ROOT / "pipelines" / "example", tmp_path / "pipelines" / "example", ignore=ignored)
    return tmp_path


DAGSTER = "import runpy; runpy.run_module('dagster', run_name='__main__')"
DG = "from dagster_dg_cli.cli import main; main()"


@pytest.mark.parametrize(
    ("program", "command", "says"),
    [
        (
            DAGSTER,
            ["definitions", "validate", "-w", "workspace.yaml"],
            "Validation successful for code location millrace",
        ),
        (DG, ["check", "defs"], "All definitions loaded successfully."),
        (DG, ["check", "yaml"], "All component YAML validated successfully."),
        (DG, ["list", "defs"], "millrace/table/readings"),
    ],
    ids=["dagster definitions validate", "dg check defs", "dg check yaml", "dg list defs"],
)
def test_a_clone_is_a_project(clone, program, command, says):
    done = subprocess.run(
        [sys.executable, "-c", program, *command], cwd=clone, capture_output=True, text=True, check=False
    )
    assert (done.returncode, says in done.stdout + done.stderr) == (0, True), done.stdout + done.stderr


def test_the_project_of_a_platform_comes_before_the_example(clone):
    assert find_project({}, clone) == clone / "pipelines" / "example"
    make_project(str(clone / ".millrace" / "up"))
    assert find_project({}, clone) == clone / ".millrace" / "up"
    make_project(str(clone))
    assert find_project({}, clone) == clone
    assert find_project({"MILLRACE_PROJECT_DIR": "/elsewhere"}, clone) == Path("/elsewhere")


def test_a_folder_without_a_project_is_named(tmp_path):
    with pytest.raises(SetupError, match=f"{tmp_path} is no project.*MILLRACE_PROJECT_DIR names one"):
        find_project({}, tmp_path)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["check", "yaml"], "All component YAML validated successfully."),
        (["check", "defs"], "All definitions loaded successfully."),
        (["list", "components"], "millrace_pipelines.MillraceComponent"),
        (["scaffold", "defs", "millrace_pipelines.MillraceComponent", "sea"], "Creating defs at"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_dg_knows_project_and_component(warm_processes, project, command, says):
    dg_program = [sys.executable, "-c", "from dagster_dg_cli.cli import main; main()"]
    done = subprocess.run([*dg_program, *command], cwd=project.path, capture_output=True, text=True, check=False)
    assert (done.returncode, says in done.stdout + done.stderr) == (0, True), done.stdout + done.stderr


def declared(attributes):
    lines = "".join(f"  {line}\n" for line in attributes.splitlines())
    return f"type: millrace_pipelines.MillraceComponent\nattributes:\n{lines}"
