"""A real disk whose power tests can cut: an ext4 file system on a loop device, ended by ext4's own shutdown.

    with PowerCutDisk(tmp_path / "disk") as disk:
        ...                  # processes write under disk.path
        disk.cut_power()     # every system call there fails with EIO; nothing more reaches the image
        ...                  # the processes end
        disk.restore()       # mounted again; the kernel replays its journal

The cut leaves what the kernel wrote to the image before: what was synced, and whatever came with it. Pages, sizes and
names that were not synced are gone. No code of ours decides which. The file system is mounted so that it does nothing
of its own accord that would hide a missing sync: its journal waits ten minutes for a commit (`commit`), and a file that
replaces another is not written first (`noauto_da_alloc`).

A sync that runs during the cut may return as if it had worked although its bytes are gone: the shutdown fails what
begins after it, not what has begun (seen at every eighth cut of one writer that syncs all the time, Linux 6.18). Only
what was known to be synced before `cut_power` is promised.

One thing is kinder than POSIX: ext4 has one journal, so the sync of any file syncs all names that were changed before.
`millrace_support.crash_fs` is stricter there.

Needs Linux, root that may mount, and `mkfs.ext4`.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from millrace.errors import SetupError

_EXT4_IOC_SHUTDOWN = 0x8004587D  # linux/fs/ext4/ext4.h: _IOR('X', 125, __u32)
_NO_LOG_FLUSH = struct.pack("=I", 2)
_MOUNT_OPTIONS = "loop,commit=600,noauto_da_alloc"
_MIB = 1 << 20


class PowerCutDisk:
    """An empty disk, mounted at `path`.

    Its image lies in memory, so that promises about time don't depend on the machine's own disk.

    Args:
        path: The mount point, which is created.
        size_bytes: The size of the image, which takes no more memory than what is written.

    Raises:
        SetupError: This machine or this user can't have such a disk.
    """

    def __init__(self, path: str | os.PathLike[str], *, size_bytes: int = 256 * _MIB) -> None:
        self.path = Path(path)
        self._image = os.memfd_create("disk")
        try:
            os.ftruncate(self._image, size_bytes)
            _run("mkfs.ext4", "-q", "-F", self._image_path)
            self.path.mkdir()
            self._mount()
        except BaseException:
            os.close(self._image)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def cut_power(self) -> None:
        """Lets nothing more reach the disk, from one moment to the next."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(folder, _EXT4_IOC_SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(folder)

    def restore(self) -> None:
        """Mounts a copy of what is left. No process may have a file open there.

        A process with a mount namespace of its own may still have the disk whose power was cut, and the kernel mounts
        that one again wherever its image is.
        """
        _run("umount", str(self.path))
        cut, cut_path = self._image, self._image_path
        self._image = os.memfd_create("disk")
        try:
            _run("cp", "--sparse=always", cut_path, self._image_path)
        finally:
            os.close(cut)
        self._mount()

    def close(self) -> None:
        """Unmounts the disk and drops its content."""
        _run("umount", str(self.path))
        self.path.rmdir()
        os.close(self._image)

    @property
    def _image_path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self._image}"

    def _mount(self) -> None:
        _run("mount", "-o", _MOUNT_OPTIONS, self._image_path, str(self.path))


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise SetupError(f"a disk whose power can be cut needs the program {command[0]}") from error
    except subprocess.CalledProcessError as error:
        raise SetupError(f"{' '.join(command)}: {error.stderr.strip()}") from error
