"""kafkajs, which npm installs by our lock file into a folder that stays; skipped where npm or node is missing."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "kafkajs"
CACHE = Path(__file__).parents[2] / ".peers" / "kafkajs"
RECORDS = 200
TIMEOUT_S = 60
INSTALL_TIMEOUT_S = 120


@pytest.fixture(scope="session")
def drive():
    """Run one task of `drive.js`; its result."""
    if not (shutil.which("npm") and shutil.which("node")):
        pytest.skip("kafkajs needs node and npm, which are not installed")
    install()

    def run(target, topic, task):
        result = subprocess.run(
            ["node", str(CACHE / "drive.js"), target.bootstrap, topic, task],
            capture_output=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr.decode()
        return json.loads(result.stdout)

    return run


def install():
    """Once for each lock file, which lies beside what was installed by it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    lock = (HERE / "package-lock.json").read_bytes()
    marker = CACHE / "installed.json"
    for file in HERE.iterdir():
        shutil.copy(file, CACHE / file.name)
    if marker.exists() and marker.read_bytes() == lock:
        return
    result = subprocess.run(
        ["npm", "ci", "--no-audit", "--no-fund"], cwd=CACHE, capture_output=True, timeout=INSTALL_TIMEOUT_S, check=False
    )
    if result.returncode:
        pytest.skip(f"npm can't install kafkajs: {result.stderr.decode()[-500:]}")
    marker.write_bytes(lock)


def values():
    return sorted(f"value-{index}" for index in range(RECORDS))


def test_kafkajs_topics(target, drive, name):
    said = drive(target, name, "topics")
    assert (said["again"], said["partitions"], said["left"]) == (False, 2, False)
    assert sorted((one["partition"], one["low"], one["high"]) for one in said["offsets"]) == [
        (0, "0", "200"),
        (1, "0", "200"),
    ]
    assert {one["offset"] for one in said["byTime"]} == {"0"}


@pytest.mark.needs("InitProducerId", "JoinGroup")
def test_kafkajs_group(target, drive, name):
    assert drive(target, name, "group") == {"first": values(), "second": values()}


@pytest.mark.needs("JoinGroup", "ListGroups", "DescribeGroups", "DeleteGroups")
def test_kafkajs_groups(target, drive, name):
    said = drive(target, name, "groups")
    assert (said["listed"], said["state"], said["deleted"]) == (True, "Empty", [0])
    assert {one["partition"]: one["offset"] for one in said["offsets"]}[0] == "5"


@pytest.mark.needs("CreatePartitions")
def test_kafkajs_partitions(target, drive, name):
    assert drive(target, name, "partitions") == 3


@pytest.mark.needs("DescribeConfigs", "AlterConfigs")
def test_kafkajs_configs(target, drive, name):
    assert drive(target, name, "configs") == [["segment.ms", "60000"]]


def test_kafkajs_cluster(target, drive, name):
    assert drive(target, name, "cluster") == {"brokers": [1], "controller": 1}


@pytest.mark.needs("AlterPartitionReassignments", "ListPartitionReassignments")
def test_kafkajs_reassignments(target, drive, name):
    assert drive(target, name, "reassignments") == {"topics": []}
