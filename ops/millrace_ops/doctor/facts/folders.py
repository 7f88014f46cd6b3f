"""Looks at data folders: their disk and mount, whose they are, whether a broker holds them. It changes nothing there.

A folder that is not there yet is judged by the nearest folder above it, in which the broker would make it.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from millrace.errors import DataDirInUseError, StorageError
from millrace.fs import OsFileSystem
from millrace_broker.storage.data_dirs.data_dir import check_unlocked
from millrace_broker.storage.data_dirs.meta_properties import read_broker_id, read_cluster_id
from millrace_broker.storage.filenames import CLEAN_SHUTDOWN, SEGMENT_SUFFIXES, parse_partition_dir
from millrace_broker.storage.recovery.offline_logs import named_damage

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
    """A data folder. `foreign_entry` is one in it that belongs to another user than the folder does.

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


def read_folder(path: str) -> FolderFacts:
    """Returns the facts of a data folder."""
    try:
        return _read(path)
    except (OSError, StorageError) as error:
        return FolderFacts(path=path, trouble=str(error))


def named_as_damaged(path: str) -> tuple[str, ...]:
    """Returns the partitions in a data folder whose logs have damaged ranges, and how many. Raises OSError."""
    fs = OsFileSystem()
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


def _read(path: str) -> FolderFacts:
    exists = os.path.isdir(path)
    nearest = str(next(one for one in (Path(path), *Path(path).parents) if one.exists()))
    disk, status = os.statvfs(nearest), os.stat(nearest)
    fs = OsFileSystem()
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
        is_held=exists and _is_held(path),
        is_clean=not partitions or os.path.exists(os.path.join(path, CLEAN_SHUTDOWN)),
        broker_id=read_broker_id(fs, path) if exists else None,
        cluster_id=read_cluster_id(fs, path) if exists else None,
        partitions=len(partitions),
        files=sum(map(_files, partitions)),
        damaged=named_as_damaged(path) if exists else (),
    )


def _is_held(path: str) -> bool:
    try:
        check_unlocked(OsFileSystem(), path)
    except DataDirInUseError:
        return True
    return False


def _partitions(path: str) -> Iterator[str]:
    with os.scandir(path) as entries:
        yield from (one.path for one in entries if parse_partition_dir(one.name) and one.is_dir())


def _files(partition: str) -> int:
    return sum(name.endswith(SEGMENT_SUFFIXES) for name in os.listdir(partition))


def _foreign_entry(path: str, owner: int) -> str | None:
    with os.scandir(path) as entries:
        others = (one for one in entries if one.stat(follow_symlinks=False).st_uid != owner)
        return next((one.path for one in others if one.name != LOST_AND_FOUND), None)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
