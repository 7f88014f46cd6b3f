"""A disk that is really full: a tmpfs of a few megabytes, mounted in a namespace of the test's own."""

import subprocess
import sys
from pathlib import Path

import pytest

SCENARIO = Path(__file__).with_name("full_disk_scenario.py")
MOUNT = 'mount -t tmpfs -o size=2m none "$0"'
TIMEOUT_S = 500


def in_own_namespace(mountpoint, *command):
    arguments = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'{MOUNT} && exec "$@"', mountpoint]
    return subprocess.run([*arguments, *command], capture_output=True, timeout=TIMEOUT_S, check=False, text=True)


@pytest.fixture
def mountpoint(tmp_path):
    try:
        tried = in_own_namespace(tmp_path, "true")
    except FileNotFoundError:
        pytest.skip("no unshare(1) here, so no file system of a test's own")
    if tried.returncode:
        pytest.skip(f"this machine lets a test mount nothing: {tried.stderr.strip()}")
    return tmp_path


def test_a_broker_on_a_full_disk_serves_what_is_there_and_goes_on_when_there_is_room(mountpoint):
    done = in_own_namespace(mountpoint, sys.executable, SCENARIO, mountpoint)
    assert done.returncode == 0, done.stderr
