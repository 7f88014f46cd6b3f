"""With the extras `tables` and `query` alone, tables are listed, audited, queried and kept: no Spark, no Dagster."""

import subprocess
import sys

import pytest

from millrace.extras import PACKAGES
from millrace_support.small_tables import make_table

PROGRAM = """
import sys

hidden, *arguments = sys.argv[1:]


class Hidden:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in hidden.split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Hidden())
from millrace_ops.cli.main import main

sys.argv[1:] = arguments
main()
"""
HIDDEN = ",".join([*PACKAGES["spark"], *PACKAGES["dagster"], "py4j", "aiohttp"])
LINES = {
    "warehouse tables FOLDER": 0,
    "warehouse ledger TABLE": 0,
    "warehouse query FOLDER SELECT+7+AS+n": 0,
    "warehouse erase TABLE --key x": 0,
    "warehouse compact TABLE": 0,
    "warehouse checkpoint TABLE": 0,
    "warehouse vacuum TABLE": 0,
    "warehouse upkeep TABLE": 0,
    "dead-letters list TABLE": 1,
    "dead-letters replay TABLE": 1,
}
FROM_PYTHON = (
    PROGRAM.partition("from millrace_ops")[0]
    + """
from millrace.errors import SetupError
import millrace_pipelines.warehouse as warehouse

for name in dir(warehouse):
    try:
        getattr(warehouse, name)
    except SetupError as error:
        print(error)
"""
)


def test_a_program_is_told_what_its_loads_lack():
    done = subprocess.run(
        [sys.executable, "-c", FROM_PYTHON, HIDDEN], capture_output=True, text=True, timeout=120, check=False
    )
    way_on = "needs the extra 'spark': pip install 'millrace-log[spark]'"
    loads = ("load_topic", "preview_load", "preview_reload", "reload_topic")
    assert (done.stdout.splitlines(), done.stderr) == ([f"{name} {way_on}" for name in loads], "")


@pytest.mark.parametrize("line", LINES)
def test_a_command_runs_without_spark_and_dagster(tmp_path, line):
    make_table(str(tmp_path / "orders"), "orders")
    places = {"FOLDER": str(tmp_path), "TABLE": str(tmp_path / "orders"), "SELECT+7+AS+n": "SELECT 7 AS n"}
    arguments = [places.get(word, word) for word in line.split()]
    command = [sys.executable, "-c", PROGRAM, HIDDEN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (LINES[line], False), done
    if LINES[line]:
        assert "orders__dead_letters: no Delta table here" in done.stderr
