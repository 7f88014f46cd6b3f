"""The files for those who work on the repository: each can be read by what reads it, and names only what there is."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.name)
def test_a_form_for_issues_has_what_it_needs(form):
    fields = read(form)
    assert fields["name"]
    assert fields["description"]
    assert all(one["type"] == "textarea" and one["attributes"]["label"] for one in fields["body"])


def test_the_workflow_runs_what_continuous_integration_runs_and_everything_each_night():
    jobs = read(".github/workflows/checks.yml")["jobs"]
    runs = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert runs == {
        "checks": [".ci/run"],
        "everything": ["make unit", "make test-all"],
        "newest-dagster": ["make newest-dagster"],
    }
    assert [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make ")] == [
        "make lint",
        "make test",
    ]


def test_hooks_call_tools_of_the_environment():
    [repository] = read(".pre-commit-config.yaml")["repos"]
    assert all(hook["entry"].startswith(".venv/bin/") for hook in repository["hooks"])


def test_the_page_for_contributors_names_targets_and_files_that_there_are():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z-]+)", page)) <= set(targets)
    paths = re.findall(r"`((?:tests|broker|docs|\.ci)/[\w./-]*)`", page)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_architecture_names_files_that_there_are_by_whole_paths():
    named = set(re.findall(r"`([\w./-]+(?:\.py|\.tsv|/))`", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")))
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_no_page_has_a_platform_s_state_in_a_folder_of_the_sources():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    given = [(page.name, one) for page in pages for one in re.findall(r"--dir[ =]([\w./-]+)", page.read_text("utf-8"))]
    assert [(page, one) for page, one in given if (ROOT / one).is_relative_to(ROOT) and (ROOT / one).exists()] == []
