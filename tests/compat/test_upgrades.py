"""Data of the version before opens in this one and goes on, and that of this version opens in the one before.

What the version before has written is recorded (millrace_support.recorded_data); that its table is loaded on is in
test_warehouse_load.py. Its code, for the way back, is taken from the repository's history.
"""

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from millrace.testing.broker import BrokerProcess
from millrace_support import recorded_data
from millrace_support.recorded_data import PROPERTIES, RECORDED

ROOT = Path(__file__).parents[2]
BEFORE = "8d68b27c"  # a commit of 0.1, or the tag of the version before
PACKAGES = ("platform", "broker")


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """What Python runs as the broker of the version before."""
    code = tmp_path_factory.mktemp("before")
    archive = subprocess.run(["git", "archive", BEFORE, *PACKAGES], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the history of this repository does not reach back to {BEFORE}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(code, filter="data")
    paths = [str(code / one) for one in PACKAGES]
    start = f"import runpy, sys; sys.path[:0] = {paths}; runpy.run_module('millrace_broker', run_name='__main__')"
    return "-c", start


def test_a_broker_opens_and_continues_what_the_version_before_has_written(tmp_path):
    recorded_data.unpack(RECORDED, tmp_path)
    with BrokerProcess(tmp_path / "data", properties=PROPERTIES) as broker:
        recorded_data.check(broker.bootstrap)


def test_the_version_before_opens_and_continues_what_this_one_has_written(before, tmp_path):
    with BrokerProcess(tmp_path / "data", properties=PROPERTIES) as broker:
        recorded_data.write(broker.bootstrap)
        broker.stop()
    with BrokerProcess(tmp_path / "data", properties=PROPERTIES, program=before) as former:
        recorded_data.check(former.bootstrap)
