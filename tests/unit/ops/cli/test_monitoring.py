"""`millrace monitoring DIR`."""

from pathlib import Path

import pytest

from millrace.errors import SetupError
from millrace_ops.cli.app import monitoring
from millrace_ops.monitoring.grafana import monitoring_files


def test_the_files_are_written_and_named(tmp_path, capsys):
    for _ in range(2):  # the second time over those of the first
        monitoring(tmp_path / "new" / "folder")
        written = capsys.readouterr().out.splitlines()
        assert {Path(one).name: Path(one).read_text() for one in written} == monitoring_files()


def test_a_folder_that_can_not_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match=r"file: File exists"):
        monitoring(tmp_path / "file")
