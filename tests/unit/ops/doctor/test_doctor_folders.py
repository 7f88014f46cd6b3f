"""What the facts of data folders mean, and how they are found."""

import os
from dataclasses import replace

import pytest

from millrace.fs import OsFileSystem
from millrace_ops.doctor.folders import FolderFacts, Mount, check_folder, check_folders, mount_of, read_folder

FS = OsFileSystem()

GIB = 1 << 30
GOOD = FolderFacts(
    path="/data",
    user="millrace",
    owner="millrace",
    mount=Mount("/data", "ext4", ("rw", "noatime")),
    device=1,
    free_bytes=50 * GIB,
    total_bytes=100 * GIB,
    free_inodes=90,
    inodes=100,
    broker_id=1,
    cluster_id="c",
    partitions=3,
    files=9,
)
MOUNTS = r"""1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
2 1 8:2 / /var/lib/mill\040race rw,noatime - xfs /dev/sdb1 rw
3 1 0:5 / /tmp rw - tmpfs tmpfs rw,size=1g
4 1 0:5 / /tmp rw - nfs4 server:/tmp rw
"""


def bad(findings):
    return [(one.level.value, one.thing.split(" ")[0]) for one in findings if one.level != "ok"]


def test_a_good_folder_has_nothing_to_change():
    assert bad(check_folder(GOOD, GIB)) == []
    assert bad(check_folders([GOOD], 1, "c")) == []


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"trouble": "/data: Permission denied"}, ("problem", "/data")),
        ({"is_writable": False, "owner": "root"}, ("problem", "owner")),
        ({"foreign_entry": "/data/t-0"}, ("problem", "owner")),
        ({"mount": Mount("/", "btrfs", ("relatime",))}, ("advice", "file")),
        ({"mount": Mount("/", "overlay", ("relatime",))}, ("advice", "file")),
        ({"mount": Mount("/", "tmpfs", ("relatime",))}, ("problem", "file")),
        ({"mount": Mount("/", "nfs4", ("relatime",))}, ("problem", "file")),
        ({"mount": Mount("/", "xfs", ("rw", "strictatime"))}, ("advice", "mount")),
        ({"free_bytes": 9 * GIB}, ("advice", "room")),
        ({"free_bytes": GIB - 1}, ("problem", "room")),
        ({"free_inodes": 9}, ("advice", "inodes")),
        ({"is_clean": False}, ("advice", "state")),
        ({"damaged": ("2 in t-0",)}, ("problem", "damaged")),
    ],
)
def test_each_fact_is_judged_by_itself(facts, expected):
    assert bad(check_folder(replace(GOOD, **facts), GIB)) == [expected]


def test_a_running_broker_has_not_stopped_yet():
    assert bad(check_folder(replace(GOOD, is_clean=False, is_held=True), GIB)) == []


@pytest.mark.parametrize(
    ("other", "broker_id", "cluster_id", "expected"),
    [
        ({"device": 2}, 1, None, []),
        ({"device": 2}, None, "c", []),
        ({"device": 1}, 1, "c", [("advice", "disks")]),
        ({"device": 2, "broker_id": 2}, None, "c", [("problem", "broker")]),
        ({"device": 2}, 7, "c", [("problem", "broker")]),
        ({"device": 2}, 1, "other", [("problem", "broker")]),
        ({"device": 2, "broker_id": None, "cluster_id": None}, 1, "c", []),
    ],
)
def test_folders_belong_together(other, broker_id, cluster_id, expected):
    assert bad(check_folders([GOOD, replace(GOOD, **other)], broker_id, cluster_id)) == expected


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/var/lib", Mount("/", "ext4", ("rw", "relatime", "rw", "errors=remount-ro"))),
        ("/var/lib/mill race/logs", Mount("/var/lib/mill race", "xfs", ("rw", "noatime", "rw"))),
        ("/tmp/t", Mount("/tmp", "nfs4", ("rw", "rw"))),
    ],
)
def test_the_mount_of_a_path_is_the_innermost_and_the_last(path, mount):
    assert mount_of(path, MOUNTS.replace("\\\\", "\\")) == mount


def test_without_a_table_of_mounts_nothing_is_known():
    assert mount_of("/", "") is None


def test_a_folder_that_is_not_there_is_judged_by_the_one_above_it(tmp_path):
    facts = read_folder(str(tmp_path / "one" / "two"), FS)
    assert (facts.exists, facts.is_writable, facts.partitions, facts.is_held) == (False, True, 0, False)
    assert facts.device == tmp_path.stat().st_dev
    assert facts.total_bytes > 0


def test_a_folder_is_read_and_left_as_it_is(tmp_path):
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=3\ncluster.id=abc\n")
    (tmp_path / "t-0").mkdir()
    for name in ("00000000000000000000.log", "00000000000000000000.index", "partition.metadata"):
        (tmp_path / "t-0" / name).touch()
    before = sorted(tmp_path.rglob("*"))
    facts = read_folder(str(tmp_path), FS)
    assert (facts.broker_id, facts.cluster_id, facts.partitions, facts.files) == (3, "abc", 1, 2)
    assert (facts.is_clean, facts.trouble, facts.foreign_entry) == (False, None, None)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_can_t_be_read_says_why(tmp_path):
    (tmp_path / "meta.properties").write_bytes(b"\xff\xfe")
    assert "meta.properties" in read_folder(str(tmp_path), FS).trouble


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_another_user_has_made_in_a_folder_is_found(tmp_path):
    for name in ("lost+found", "t-0"):
        (tmp_path / name).mkdir()
        assert read_folder(str(tmp_path), FS).foreign_entry is None
        os.chown(tmp_path / name, 12_345, 12_345)
    assert read_folder(str(tmp_path), FS).foreign_entry == str(tmp_path / "t-0")
