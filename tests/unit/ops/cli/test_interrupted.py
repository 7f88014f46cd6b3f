"""What is said when Ctrl-C ends work on a table: the commits that were made until then, and no others."""

import pytest

from millrace.fs import OsFileSystem
from millrace_ops.cli.interrupted import telling_commits
from millrace_pipelines.warehouse.delta.table import Table
from millrace_pipelines.warehouse.table.files import write_file
from millrace_support.small_tables import make_table, open_tables

FS = OsFileSystem()


def commit(location, **lineage):
    table = Table.load(location, FS)
    file = write_file(location, f"load{table.version}", table.dataset().to_table(), FS)
    table.commit([file], expected={}, transactions={}, lineage=lineage)


def interrupted(capsys, location, work=lambda: None):
    def end_by_ctrl_c():
        work()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), telling_commits(location):
        end_by_ctrl_c()
    output, error = capsys.readouterr()
    assert output == ""
    return error


def test_nothing_was_committed(capsys, tmp_path):
    location = make_table(str(tmp_path / "t"), "events")
    nothing = f"millrace: interrupted: {location}: nothing was committed\n"
    assert interrupted(capsys, location) == nothing  # what was there before is not told
    missing = str(tmp_path / "missing")
    assert interrupted(capsys, missing) == nothing.replace(location, missing)


def test_a_table_that_was_only_made_ready_has_no_commit_to_tell(capsys, tmp_path):
    location = str(tmp_path / "t")
    told = interrupted(capsys, location, lambda: open_tables(location, "events", "id", None, FS))
    assert told == f"millrace: interrupted: {location}: nothing was committed\n"


def test_each_commit_is_told(capsys, tmp_path):
    location = make_table(str(tmp_path / "t"), "events")
    before = Table.load(location, FS).version

    def work():
        commit(location, kind="schema")
        commit(location, kind="compact")
        commit(location, rows=12_345)

    assert interrupted(capsys, location, work) == (
        f"millrace: interrupted: {location}: version {before + 2} was committed (compact); "
        f"version {before + 3} was committed (load, 12,345 rows)\n"
    )


def test_what_ends_by_itself_is_not_told(capsys, tmp_path):
    with telling_commits(make_table(str(tmp_path / "t"), "events")):
        pass
    assert capsys.readouterr() == ("", "")
