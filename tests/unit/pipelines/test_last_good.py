"""The last good copy of a project: made in whole or not at all, never changed, and found where nothing else is."""

import os
from pathlib import Path

import pytest

from millrace_pipelines import last_good


@pytest.fixture
def project(tmp_path):
    """The files of a small project, in a folder of its own."""
    (tmp_path / "defs" / "cluster").mkdir(parents=True)
    (tmp_path / "dg.toml").write_text("")
    (tmp_path / "defs" / "cluster" / "defs.yaml").write_text("first")
    return tmp_path


def declared(copy):
    return (copy / "defs" / "cluster" / "defs.yaml").read_text()


def test_a_copy_has_what_was_loaded_and_stays_as_it_is(project):
    assert last_good.good_copy(project) is None
    last_good.keep(project, last_good.digest_of(project))
    first = last_good.good_copy(project)
    assert declared(first) == "first"
    assert (first / "dg.toml").is_file()
    (project / "defs" / "cluster" / "defs.yaml").write_text("second")
    last_good.keep(project, last_good.digest_of(project))
    assert [declared(one) for one in (first, last_good.good_copy(project))] == ["first", "second"]


def test_the_state_of_a_copy_is_the_project_s_own(project):
    last_good.keep(project, last_good.digest_of(project))
    state = last_good.good_copy(project) / "defs" / ".local_defs_state"
    (state / "topics").write_text("a")
    assert (project / "defs" / ".local_defs_state" / "topics").read_text() == "a"


def test_files_that_changed_while_they_were_loaded_are_not_kept(project):
    last_good.keep(project, last_good.digest_of(project))
    loaded = last_good.digest_of(project)
    (project / "defs" / "cluster" / "defs.yaml").write_text("half-typ")
    last_good.keep(project, f"{loaded}-of-other-files")
    assert declared(last_good.good_copy(project)) == "first"
    assert [one.name for one in (project / ".last_good").iterdir() if one.is_dir() and not one.is_symlink()] == [loaded]


@pytest.mark.parametrize("crash", ["replace", "symlink_to"])
def test_a_copy_that_is_not_finished_is_not_found(project, monkeypatch, crash):
    last_good.keep(project, last_good.digest_of(project))
    (project / "defs" / "cluster" / "defs.yaml").write_text("second")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, crash, killed)
        with pytest.raises(KeyboardInterrupt):
            last_good.keep(project, last_good.digest_of(project))
    assert declared(last_good.good_copy(project)) == "first"
    last_good.keep(project, last_good.digest_of(project))
    assert declared(last_good.good_copy(project)) == "second"


def test_where_a_copy_can_t_be_made_no_older_one_stands_for_it(project, monkeypatch, caplog):
    last_good.keep(project, last_good.digest_of(project))

    def full(*_args, **_settings):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(last_good.shutil, "copytree", full)
    (project / "defs" / "cluster" / "defs.yaml").write_text("second")
    last_good.keep(project, last_good.digest_of(project))
    assert last_good.good_copy(project) is None
    assert "No space left on device" in caplog.text


def test_only_the_newest_copies_stay(project):
    for number in range(last_good.COPIES + 3):
        (project / "defs" / "cluster" / "defs.yaml").write_text("x" * number)
        last_good.keep(project, last_good.digest_of(project))
    folders = [one for one in (project / ".last_good").iterdir() if one.is_dir() and not one.is_symlink()]
    assert len(folders) == last_good.COPIES
    assert declared(last_good.good_copy(project)) == "x" * (last_good.COPIES + 2)


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("defs/cluster/flights.json", True),
        ("defs/jobs.py", True),
        ("pyproject.toml", True),
        ("defs/cluster/.defs.yaml.swp", False),
        ("defs/cluster/defs.yaml~", False),
        ("defs/__pycache__/jobs.pyc", False),
        ("defs/.local_defs_state/topics/state", False),
        ("warehouse/flights/part-0.parquet", False),
    ],
)
def test_the_digest_is_that_of_the_files_that_are_loaded(project, file, counts):
    before = last_good.digest_of(project)
    (project / file).parent.mkdir(parents=True, exist_ok=True)
    (project / file).write_text("new")
    assert (last_good.digest_of(project) != before) == counts


def test_a_path_in_a_copy_stands_for_one_in_the_project():
    assert last_good.original(Path("/p/.last_good/ab12/defs/cluster")) == Path("/p/defs/cluster")
    assert last_good.original(Path("/p/defs/cluster")) == Path("/p/defs/cluster")


def test_a_fault_is_noted_until_it_is_mended(project):
    assert last_good.noted_fault(project) == ""
    last_good.note_fault(project, "defs.yaml:3: …")
    assert last_good.noted_fault(project) == "defs.yaml:3: …"
    last_good.note_fault(project, "")
    assert last_good.noted_fault(project) == ""
