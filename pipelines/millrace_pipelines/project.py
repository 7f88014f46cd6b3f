"""The project of a platform's definitions: a folder that `dg` and the code server of `millrace up` read alike.

It is made without Dagster, which `millrace up` doesn't keep in its memory; `definitions` loads it.

    DIR/dg.toml             says that this folder is a project, and that its definitions lie in defs/
    DIR/defs/…/defs.yaml    the declarations (docs/dagster.md)
    DIR/defs/.local_defs_state/    the topics that the cluster had when it was last asked
    DIR/.last_good/         the files as they could last be loaded (`last_good`)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from millrace.errors import SetupError

PROJECT_DIR = "MILLRACE_PROJECT_DIR"
MADE_BY_UP = ".millrace/up"
EXAMPLE = "pipelines/example"

REQUEST_INTERVAL_MS = 3_600_000
"""How often the definitions have retention and compaction done; `millrace up` tells the broker."""

DG_TOML = """\
directory_type = "project"

[project]
root_module = "defs"
defs_module = "defs"
code_location_name = "millrace"
code_location_target_module = "millrace_pipelines.definitions"
"""

DEFS_YAML = """\
# The cluster of this platform, and the tables that its topics become: docs/dagster.md has all fields.
type: millrace_pipelines.MillraceComponent

attributes:
  # Topics that are not declared below become tables of raw records: "load". "observe" only shows them.
  undeclared_topics: load
  tables: []
  #  - topic: flights
  #    partitions: 4
  #    schema: flights.json          # beside this file
  #    schedule: "*/15 * * * *"      # or lag_bound: 10000; with neither, as soon as there are new records
  #    freshness: 1h
  #    owners: [team:data]
"""


def find_project(environment: Mapping[str, str], here: Path) -> Path:
    """Returns the folder of the project whose definitions Dagster asks for.

    It is the one that the variable MILLRACE_PROJECT_DIR names; else the working directory `here`, if it is a project;
    else the one in it that `millrace up` has made; else the example of a clone. Raises SetupError without any.
    """
    if named := environment.get(PROJECT_DIR):
        return Path(named)
    found = next((one for one in (here, here / MADE_BY_UP, here / EXAMPLE) if (one / "dg.toml").is_file()), None)
    if found is None:
        raise SetupError(
            f"{here} is no project, as it has no dg.toml: {PROJECT_DIR} names one, such as {MADE_BY_UP}, which "
            "`millrace up` makes"
        )
    return found


def make_project(directory: str) -> None:
    """Writes the files of a project where they are missing; a folder `defs` that is there stays as it is."""
    root = Path(directory)
    if not (root / "defs").is_dir():
        write_definitions(directory, "cluster/defs.yaml", DEFS_YAML)
    if not (root / "dg.toml").is_file():
        (root / "dg.toml").write_text(DG_TOML, encoding="utf-8")


def write_definitions(directory: str, path: str, text: str) -> None:
    """Writes `text` to the file `path` below the folder `defs` of the project in `directory`."""
    file = Path(directory) / "defs" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
