"""A project whose files have a fault: the fault is told with file and line, and the last good definitions go on."""

import logging
import subprocess
import sys

import dagster as dg
import pytest

from millrace.errors import SetupError
from millrace_pipelines.definitions import go_on_with_project, load_project, refresh_project
from millrace_pipelines.last_good import FIRST, noted_fault
from millrace_pipelines.project import make_project, write_definitions

FILE = "cluster/defs.yaml"
GOOD = "type: millrace_pipelines.MillraceComponent\nattributes:\n  tables:\n    - topic: flights\n"
# What a file may look like while somebody types, and what is said of it, behind the file's path.
FAULTS = {
    f"{GOOD}      freshness: [\n": ":6: expected the node content, but found '<stream end>'",
    f"{GOOD}\tmode: append\n": ":5: found character '\\t' that cannot start any token",
    f"{GOOD}     mode: append\n": ":5: expected <block end>, but found '<block mapping start>'",
    f"{GOOD}      moode: append\n": ":5: tables.0.moode: there is no such field; did you mean mode?",
    f"{GOOD}      xyz: append\n": ":5: tables.0.xyz: there is no such field",
    f"{GOOD}  tabels: []\n": ":5: tabels: there is no such field; did you mean tables?",
    f"{GOOD}      mode: apend\n": ":5: tables.0.mode: Input should be 'append' or 'upsert'; did you mean append?",
    f"{GOOD}      freshness: soon\n": ":5: tables.0.freshness: expected a duration such as 90s, 15m, 6h or 1d",
    f"{GOOD}      table: '{{{{ enw.X }}}}'\n": ":5: attributes.tables.0.table: 'enw' is undefined",
    f"{GOOD}    - topic: flights\n": ":2: attributes: declared more than once: flights",
    GOOD.replace("attributes", "atributes"): ":2: atributes: there is no such field; did you mean attributes?",
    GOOD.replace("MillraceC", "MilraceC"): (
        ":1: type: Module `millrace_pipelines` has no attribute `MilraceComponent`; "
        "did you mean millrace_pipelines.MillraceComponent?"
    ),
    GOOD.replace("millrace_", "milrace_"): (
        ":1: type: Module `milrace_pipelines` not found; did you mean millrace_pipelines.MillraceComponent?"
    ),
    "attributes: {tables: []}\n": ":1: type: Field required",
    "- flights\n": ":1: Input should be an object",
    "# nothing yet\n"[:0]: ": the file is empty",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose files can be written and loaded several times in this process."""
    make_project(str(tmp_path))
    monkeypatch.setattr("sys.path", sys.path[:])
    monkeypatch.setenv("MILLRACE_WAREHOUSE_DIR", str(tmp_path / "warehouse"))
    monkeypatch.setenv("MILLRACE_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.delenv("MILLRACE_DAGSTER_URL", raising=False)

    def forget():
        for name in [name for name in sys.modules if name.split(".")[0] == "defs"]:
            monkeypatch.delitem(sys.modules, name)

    def load(text=None, by=lambda: go_on_with_project(tmp_path)):
        if text is not None:
            write_definitions(str(tmp_path), FILE, text)
        forget()
        return by()

    load.path = tmp_path
    load.file = tmp_path / "defs" / FILE
    return load


def tables(defs):
    keys = defs.resolve_asset_graph().get_all_asset_keys()
    return {key.path[-1] for key in keys if key.path[:2] == ["millrace", "table"]}


def tick(defs, instance, cursor=None):
    sensor = defs.get_sensor_def("project_files")
    with dg.build_sensor_context(instance, cursor=cursor, sensor_name="project_files") as context:
        return sensor(context)


@pytest.mark.parametrize(("text", "words"), FAULTS.items(), ids=lambda value: value[-40:])
def test_a_fault_is_one_line_with_its_place_wherever_files_are_read(project, text, words):
    for read in (load_project, refresh_project):
        with pytest.raises(SetupError) as refused:
            project(text, by=lambda read=read: read(str(project.path)))
        assert str(refused.value) == f"{project.file}{words}"


def test_a_fault_in_a_module_beside_it_names_the_module_s_line(project):
    project(GOOD)
    module = project.path / "defs" / "jobs.py"
    module.write_text("import dagster as dg\n\ndef half(\n")
    with pytest.raises(SetupError, match=rf"^{module}:3: '\(' was never closed$"):
        project(by=lambda: load_project(str(project.path)))


def test_what_fits_one_by_one_and_not_together_is_a_fault(project):
    project(GOOD)
    clash = "import dagster as dg\n\n@dg.job(name='load_millrace')\ndef other():\n    pass\n"
    (project.path / "defs" / "jobs.py").write_text(clash)
    assert tables(project()) == {"flights"}
    assert "load_millrace" in noted_fault(project.path)


def test_the_last_good_definitions_go_on_until_the_fault_is_mended(project):
    with dg.DagsterInstance.ephemeral() as instance:
        good = tick(project(GOOD), instance)
        assert [event.passed for event in good.asset_events] == [True]
        assert tick(project(), instance, good.cursor).asset_events == []

        defs = project(f"{GOOD}      moode: append\n    - topic: airlines\n")
        assert tables(defs) == {"flights"}
        fault = f"{project.file}:5: tables.0.moode: there is no such field; did you mean mode?"
        assert noted_fault(project.path) == fault
        told = tick(defs, instance, good.cursor)
        says = f"{fault}\nUntil that is mended, the last good definitions go on, where there are any."
        assert told.skip_reason.skip_message == says
        [event] = told.asset_events
        assert (event.asset_key.to_user_string(), event.check_name) == ("millrace/declaration", "as_written")
        assert (event.passed, event.description) == (False, says)
        assert tick(defs, instance, told.cursor).asset_events == []

        mended = project(f"{GOOD}    - topic: airlines\n")
        assert tables(mended) == {"airlines", "flights"}
        assert noted_fault(project.path) == ""
        assert [event.passed for event in tick(mended, instance, told.cursor).asset_events] == [True]


def test_a_changed_file_is_noticed_and_tried_once(project):
    with dg.DagsterInstance.ephemeral() as instance:
        defs = project(GOOD)
        write_definitions(str(project.path), FILE, f"{GOOD}      moode: append\n")
        assert tick(defs, instance).skip_reason.skip_message.startswith("The files have changed: reload")
        faulty = project()
        assert "have changed" not in tick(faulty, instance).skip_reason.skip_message


def test_a_fault_from_the_beginning_leaves_what_needs_no_declaration(project):
    defs = project(f"{GOOD}      moode: append\n")
    assert tables(defs) == set()
    assert defs.get_job_def("prune_runs")
    with dg.DagsterInstance.ephemeral() as instance:
        [event] = tick(defs, instance).asset_events
    assert (event.asset_key.to_user_string(), event.passed) == ("millrace/declaration", False)
    assert event.description.startswith(f"{project.file}:5: tables.0.moode: there is no such field; did you mean mode?")


def test_a_run_has_the_definitions_from_which_it_was_requested(project, monkeypatch):
    project(f"{GOOD}      schema: flights.json\n")
    write_definitions(str(project.path), FILE, GOOD.replace("flights", "fl"))  # valid, and half-typed
    monkeypatch.setenv(FIRST, "1")
    defs = project()
    assert tables(defs) == {"flights"}
    monkeypatch.delenv(FIRST)
    assert tables(project()) == {"fl"}


def test_a_module_of_the_last_good_copy_is_that_of_before(project):
    module = project.path / "defs" / "jobs.py"
    write_definitions(str(project.path), FILE, GOOD)
    module.write_text("import dagster as dg\n\n@dg.job\ndef before():\n    pass\n")
    assert "before" in project().get_repository_def().job_names
    module.write_text("import dagster as dg\n\n@dg.job\ndef after():\n    pass\n\nhalf(")
    assert {"before", "after"} & {*project().get_repository_def().job_names} == {"before"}


def test_the_check_in_the_ui_tells_the_fault_too(project):
    defs = project(GOOD)
    project("- half\n")
    check = dg.AssetSelection.checks(dg.AssetCheckKey(dg.AssetKey(["millrace", "declaration"]), "as_written"))
    job = dg.define_asset_job("check", selection=check).resolve(asset_graph=defs.resolve_asset_graph())
    [evaluation] = job.execute_in_process().get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.description.splitlines()[0]) == (
        False,
        f"{project.file}:1: Input should be an object",
    )


def test_the_fault_is_in_the_code_server_s_log(project, caplog):
    with caplog.at_level(logging.ERROR):
        project("- half\n")
    assert f"{project.file}:1: Input should be an object" in caplog.text


@pytest.mark.parametrize(
    "program",
    [
        ["dagster_dg_cli.cli", "check", "defs"],
        ["dagster", "definitions", "validate", "-m", "millrace_pipelines.definitions"],
    ],
    ids=" ".join,
)
def test_commands_that_check_definitions_fail(warm_processes, project, program):
    project(GOOD)
    project(f"{GOOD}      moode: append\n")
    module, *arguments = program
    run = (
        "from dagster_dg_cli.cli import main; main()"
        if module == "dagster_dg_cli.cli"
        else "import runpy; runpy.run_module('dagster', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", run, *arguments], cwd=project.path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "moode" in done.stdout + done.stderr
