"""The archive for executors: an interpreter that starts without anything of this machine's Python."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pyspark
import pytest

from millrace.errors import SetupError
from millrace_pipelines.spark import archive

OF_SPARK = os.pathsep.join(map(str, Path(pyspark.__file__).parent.glob("python/lib/*.zip")))
SHOWN = """
import sys, pyarrow, deltalake, pandas
import millrace.kernel
import millrace_pipelines.warehouse.load.jobs as jobs
print(sys.prefix, jobs.__file__, pyarrow.__file__, sep="\\n")
print([path for path in sys.path if path and not path.startswith(sys.prefix) and not path.endswith(".zip")])
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """An archive, and where it was unpacked."""
    folder = tmp_path_factory.mktemp("packed")
    told = archive.pack_environment(folder / "executors.tar.gz")
    assert [one.name for one in folder.iterdir()] == ["executors.tar.gz"]
    assert told.size_bytes == (folder / "executors.tar.gz").stat().st_size
    with tarfile.open(folder / "executors.tar.gz") as file:
        file.extractall(folder / "elsewhere", filter="tar")
        yield folder / "elsewhere", file.getnames()
    shutil.rmtree(folder)


def test_its_python_imports_what_tasks_need_and_looks_nowhere_else(packed):
    folder, _ = packed
    command = [folder / "bin" / "python", "-c", SHOWN]
    shown = subprocess.run(command, env={"PYTHONPATH": OF_SPARK}, capture_output=True, text=True, check=True).stdout
    *places, elsewhere = shown.splitlines()
    assert all(place.startswith(str(folder)) for place in places)
    assert elsewhere == "[]"


def test_it_leaves_out_what_executors_have_or_never_use(packed):
    _, names = packed
    packages = {name.split("/")[3] for name in names if name.startswith(archive.PACKAGES_FOLDER + "/")}
    assert {"millrace", "millrace_pipelines", "pyarrow", "deltalake"} <= packages
    assert packages.isdisjoint({"pyspark", "py4j", "pytest", "dagster", "millrace_broker"})
    assert not any(name.endswith((".pth", ".pyc")) for name in names)


def test_an_archive_that_spark_would_not_unpack_is_refused(tmp_path):
    with pytest.raises(SetupError, match=r"executors: Spark unpacks archives by their names, .* \.tar\.gz"):
        archive.pack_environment(tmp_path / "executors")


@pytest.mark.parametrize(("name", "value", "told"), [
    ("EXTRAS", frozenset({"tables", "flying"}), "without knowing the extra 'flying': install it again"),
    ("DISTRIBUTION", "millrace-of-old", "executors need the package millrace-of-old, which is not installed here"),
])  # fmt: skip
def test_what_is_not_installed_is_named(tmp_path, monkeypatch, name, value, told):
    monkeypatch.setattr(archive, name, value)
    with pytest.raises(SetupError, match=told):
        archive.pack_environment(tmp_path / "executors.tar.gz")
    assert list(tmp_path.iterdir()) == []
