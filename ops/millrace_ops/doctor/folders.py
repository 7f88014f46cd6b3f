"""What data folders are like: their disk, their owner, and how the last broker left them. Nothing is changed there.

A folder that is not there yet is judged by the nearest folder above it, in which the broker would make it.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from millrace.errors import DataDirInUseError, StorageError
from millrace.fs import FileSystem
from millrace_broker.storage.data_dirs.data_dir import check_unlocked
from millrace_broker.storage.data_dirs.meta_properties import read_broker_id, read_cluster_id
from millrace_broker.storage.filenames import CLEAN_SHUTDOWN, SEGMENT_SUFFIXES, parse_partition_dir
from millrace_broker.storage.recovery.offline_logs import named_damage
from millrace_ops.doctor.findings import DoctorFinding, Level, judged
from millrace_ops.sizes import size

MOUNTS = Path("/proc/self/mountinfo")
LOST_AND_FOUND = "lost+found"  # ext4's folder at the top of a disk, which belongs to root
OCTAL = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mounted file system: where, of which type, and with which options."""

    point: str
    type: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFacts:
    """The state of a data folder. `foreign_entry` is an entry in it that belongs to another user than the folder.

    `inodes` and `free_inodes` are 0 where the file system makes them as it needs them. `trouble` says why the folder
    could not be read; the other facts are then of no use. `damaged` has the partitions of which `damaged-ranges` names
    something, and how much.
    """

    path: str
    trouble: str | None = None
    exists: bool = True
    user: str = ""
    owner: str = ""
    is_writable: bool = True
    foreign_entry: str | None = None
    mount: Mount | None = None
    device: int = 0
    free_bytes: int = 0
    total_bytes: int = 0
    free_inodes: int = 0
    inodes: int = 0
    is_held: bool = False
    is_clean: bool = True
    broker_id: int | None = None
    cluster_id: str | None = None
    partitions: int = 0
    files: int = 0
    damaged: tuple[str, ...] = ()


def read_folder(path: str, fs: FileSystem) -> FolderFacts:
    """Reads the state of a data folder."""
    try:
        return _read(path, fs)
    except (OSError, StorageError) as error:
        return FolderFacts(path=path, trouble=str(error))


def named_as_damaged(path: str, fs: FileSystem) -> tuple[str, ...]:
    """Returns the partitions in a data folder whose logs have damaged ranges, and how many. Raises OSError."""
    counts = {folder: sum(map(len, named_damage(fs, folder).values())) for folder in sorted(_partitions(path))}
    return tuple(f"{count} in {os.path.basename(folder)}" for folder, count in counts.items() if count)


def mount_of(path: str, mounts: str) -> Mount | None:
    """Returns the mount that a path lies on; `mounts` has the form of `/proc/self/mountinfo` (proc(5))."""
    found = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(" "), after.split(" ", 2)
        point = OCTAL.sub(lambda one: chr(int(one[1], 8)), fields[4])
        if Path(path).is_relative_to(point) and (found is None or len(point) >= len(found.point)):
            found = Mount(point, kind, (*fields[5].split(","), *options.split(",")))
    return found


def _read(path: str, fs: FileSystem) -> FolderFacts:
    exists = os.path.isdir(path)
    nearest = str(next(one for one in (Path(path), *Path(path).parents) if one.exists()))
    disk, status = os.statvfs(nearest), os.stat(nearest)
    partitions = list(_partitions(path)) if exists else []
    return FolderFacts(
        path=path,
        exists=exists,
        user=_user(os.geteuid()),
        owner=_user(status.st_uid),
        is_writable=os.access(nearest, os.W_OK | os.X_OK),
        foreign_entry=_foreign_entry(path, status.st_uid) if exists else None,
        mount=mount_of(os.path.realpath(nearest), MOUNTS.read_text(encoding="utf-8") if MOUNTS.exists() else ""),
        device=status.st_dev,
        free_bytes=disk.f_bavail * disk.f_frsize,
        total_bytes=disk.f_blocks * disk.f_frsize,
        free_inodes=disk.f_favail,
        inodes=disk.f_files,
        is_held=exists and _is_held(path, fs),
        is_clean=not partitions or os.path.exists(os.path.join(path, CLEAN_SHUTDOWN)),
        broker_id=read_broker_id(fs, path) if exists else None,
        cluster_id=read_cluster_id(fs, path) if exists else None,
        partitions=len(partitions),
        files=sum(name.endswith(SEGMENT_SUFFIXES) for one in partitions for name in os.listdir(one)),
        damaged=named_as_damaged(path, fs) if exists else (),
    )


def _is_held(path: str, fs: FileSystem) -> bool:
    try:
        check_unlocked(fs, path)
    except DataDirInUseError:
        return True
    return False


def _partitions(path: str) -> Iterator[str]:
    with os.scandir(path) as entries:
        yield from (one.path for one in entries if parse_partition_dir(one.name) and one.is_dir())


def _foreign_entry(path: str, owner: int) -> str | None:
    with os.scandir(path) as entries:
        others = (one for one in entries if one.stat(follow_symlinks=False).st_uid != owner)
        return next((one.path for one in others if one.name != LOST_AND_FOUND), None)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


LOST_WITH_THE_MACHINE = ("ramfs", "tmpfs")
OVER_A_NETWORK = ("9p", "afs", "ceph", "cifs", "nfs", "nfs4", "smb3")
PROVEN = ("ext4", "xfs")
LEAST_FREE_SHARE = 0.1


def check_folder(facts: FolderFacts, segment_bytes: int) -> Iterator[DoctorFinding]:
    """Yields findings on a folder: rights, file system, room for a segment of `segment_bytes`, last stop, damage."""
    if facts.trouble is not None:
        change = "let the broker's user read and write there, and run this command as that user"
        yield DoctorFinding(Level.PROBLEM, facts.path, facts.trouble, "a folder that can be read", change)
        return
    yield check_access(facts)
    if facts.mount is not None:
        yield check_file_system(facts.path, facts.mount)
        yield judged(
            f"mount options of {facts.path}",
            ",".join(one for one in facts.mount.options if "atime" in one) or "every read writes the time of access",
            "noatime or relatime",
            f"mount -o remount,noatime {facts.mount.point}, and noatime in /etc/fstab",
            is_well="noatime" in facts.mount.options or "relatime" in facts.mount.options,
        )
    # For another segment, which compaction needs too, and some more.
    wanted = max(segment_bytes, int(LEAST_FREE_SHARE * facts.total_bytes))
    yield judged(
        f"room in {facts.path}",
        f"{size(facts.free_bytes)} of {size(facts.total_bytes)} free",
        f"{size(wanted)} or more",
        "a larger disk, or less to keep: log.retention.bytes and log.retention.ms, or retention.bytes of the topics",
        is_well=facts.free_bytes >= wanted,
        otherwise=Level.PROBLEM if facts.free_bytes < segment_bytes else Level.ADVICE,
    )
    if facts.inodes:
        # A segment has three or four files.
        yield judged(
            f"inodes for {facts.path}",
            f"{facts.free_inodes} of {facts.inodes} free",
            "a tenth or more",
            "larger segments (log.segment.bytes), or a file system with more inodes",
            is_well=facts.free_inodes >= LEAST_FREE_SHARE * facts.inodes,
        )
    yield check_last_stop(facts)
    yield judged(
        f"damaged ranges in {facts.path}",
        ", ".join(facts.damaged) or "0",
        "0",
        f"copy the partitions from other replicas; or stop the broker, and `millrace verify --repair {facts.path}`",
        is_well=not facts.damaged,
        otherwise=Level.PROBLEM,
    )


def check_folders(
    folders: Sequence[FolderFacts], broker_id: int | None, cluster_id: str | None
) -> Iterator[DoctorFinding]:
    """Yields findings on whether each folder has its own disk, and all belong to this broker and cluster, if known."""
    if len(folders) > 1:
        # Brokers spread partitions over folders by number.
        devices = len({one.device for one in folders})
        yield judged(
            "disks of log.dirs",
            f"{devices} for {len(folders)} folders",
            "one for each folder",
            "name one folder of each disk in log.dirs; a log is moved with kafka-reassign-partitions",
            is_well=devices == len(folders),
        )
    yield check_owners(folders, broker_id, cluster_id)


def check_access(facts: FolderFacts) -> DoctorFinding:
    """Returns the finding on whether this user may write everything in a folder."""
    thing = f"owner of {facts.path}"
    if facts.foreign_entry is not None:
        change = f"chown -R {facts.owner}: {facts.path}, once no broker runs on it"
        found = f"{facts.owner}, but {facts.foreign_entry} belongs to another user"
        return DoctorFinding(Level.PROBLEM, thing, found, "one user for everything", change)
    there = facts.owner if facts.exists else f"{facts.owner}; it is not there yet, and the broker makes it"
    return judged(
        thing,
        there if facts.is_writable else f"{there}, and {facts.user} can't write there",
        "the broker's user",
        f"chown -R {facts.user}: {facts.path}, or run this command as the broker's user",
        is_well=facts.is_writable,
        otherwise=Level.PROBLEM,
    )


def check_file_system(path: str, mount: Mount) -> DoctorFinding:
    """Returns the finding on whether a file system keeps synced data, and locks and renames as a local disk does."""
    is_lost, is_far = mount.type in LOST_WITH_THE_MACHINE, mount.type in OVER_A_NETWORK
    found = f"{mount.type} at {mount.point}"
    if is_lost:
        found += ", gone with the next start of the machine"
    elif mount.type == "overlay":
        found += ", gone with the container"
    return judged(
        f"file system of {path}",
        found,
        " or ".join(PROVEN),
        "mount a volume there" if mount.type == "overlay" else f"put log.dirs on a local disk with {PROVEN[0]}",
        is_well=mount.type in PROVEN,
        otherwise=Level.PROBLEM if is_lost or is_far else Level.ADVICE,
    )


def check_last_stop(facts: FolderFacts) -> DoctorFinding:
    """Returns the finding on whether the last broker stopped cleanly; else the next one has to recover the logs."""
    logs = f"{facts.partitions} partitions in {facts.files} files"
    how = "a broker runs on it" if facts.is_held else "stopped cleanly" if facts.is_clean else "not stopped cleanly"
    return judged(
        f"state of {facts.path}",
        f"{logs}; {how}" if facts.partitions or facts.is_held else "no logs yet",
        "stopped cleanly, or in use",
        "nothing: the next start recovers the logs. Stop brokers by SIGTERM and wait for them (TimeoutStopSec)",
        is_well=facts.is_held or facts.is_clean,
    )


def check_owners(folders: Sequence[FolderFacts], broker_id: int | None, cluster_id: str | None) -> DoctorFinding:
    """Returns the finding on whether all folders belong to one broker and cluster: the given ones, if not None."""
    brokers = {one for one in (broker_id, *(one.broker_id for one in folders)) if one is not None}
    clusters = {one for one in (cluster_id, *(one.cluster_id for one in folders)) if one is not None}
    return judged(
        "broker and cluster of log.dirs",
        f"broker {_all(brokers)}, cluster {_all(clusters)}",
        "one broker of one cluster",
        "name the folders, the broker.id and the ZooKeeper that belong together (meta.properties says of which broker)",
        is_well=len(brokers) <= 1 and len(clusters) <= 1,
        otherwise=Level.PROBLEM,
    )


def _all(values: set[int] | set[str]) -> str:
    return " and ".join(sorted(map(str, values))) or "not known yet"
