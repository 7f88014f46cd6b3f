"""What a broker may have lost since its last stop; it says so in ZooKeeper before it registers.

| data directory | what may be lost |
|---|---|
| without a broker id: it is new | every partition, but those whose folders are in other data directories |
| with the marker of a clean stop | nothing |
| no marker, the machine has not started since | nothing: the process has ended, and the kernel has what it wrote |
| no marker, the machine has started since, or that is not known | what was not synced |
| it can't be read | nothing here: opening the logs takes it offline, and its replicas with it |

The machine's start has an id of the kernel's (`boot_id`), which each data directory keeps in a file from before the
marker goes. A crash between the report and that file has the same loss reported once more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from millrace.errors import StorageError
from millrace.fs import FileSystem
from millrace_broker.cluster.store import Losses
from millrace_broker.storage import TopicPartition
from millrace_broker.storage.data_dirs.data_dir import read_boot_id
from millrace_broker.storage.data_dirs.meta_properties import read_broker_id
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import CLEAN_SHUTDOWN, parse_partition_dir

BOOT_ID_OF_MACHINE = Path("/proc/sys/kernel/random/boot_id")


def machines_boot_id() -> str | None:
    """Returns the id of the machine's last start; None where the system does not tell it."""
    try:
        return BOOT_ID_OF_MACHINE.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def losses_since_last_stop(fs: FileSystem, data_dirs: Sequence[str], boot_id: str | None) -> Losses:
    """Returns what may be lost of what the data directories had; `boot_id` is that of the machine's last start."""
    new: list[str] = []
    former: list[str] = []
    for directory in data_dirs:
        with suppress(StorageError):  # opening the folder will say so
            (new if read_broker_id(fs, directory) is None else former).append(directory)
    kept = frozenset(_partitions(fs, former)) if new else frozenset[TopicPartition]()
    return Losses(bool(new), kept, any(_may_lack_unsynced(fs, directory, boot_id) for directory in former))


def _partitions(fs: FileSystem, data_dirs: Iterable[str]) -> Iterable[TopicPartition]:
    for directory in data_dirs:
        with storage_errors(directory):
            names = fs.listdir(directory)
        yield from (found for name in names if (found := parse_partition_dir(name)) is not None)


def _may_lack_unsynced(fs: FileSystem, directory: str, boot_id: str | None) -> bool:
    if fs.exists(os.path.join(directory, CLEAN_SHUTDOWN)):
        return False
    return boot_id is None or read_boot_id(fs, directory) != boot_id
