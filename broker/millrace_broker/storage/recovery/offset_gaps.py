"""`offset-gaps`: a file that says that a log may leave out offsets anywhere (docs/formats/data-directory.md).

A log that is written by its leader has no gaps above the recovery point, and recovery takes one there for damage: the
CRC of a batch does not cover its base offset. A follower's log gets the gaps that compaction has made in its leader's.
So before the first of them is written the follower makes this file, and from then on recovery accepts offsets that are
left out, as Apache Kafka does in every log. The file is Millrace's own, and stays.
"""

from __future__ import annotations

import os

from millrace.fs import FileSystem, write_file_durably
from millrace_broker.storage.failures import storage_errors
from millrace_broker.storage.filenames import OFFSET_GAPS

CONTENT = b"version: 0\n"


def may_have_gaps(fs: FileSystem, directory: str) -> bool:
    """Returns whether the log of a folder may leave out offsets anywhere. Raises OSError."""
    return fs.exists(os.path.join(directory, OFFSET_GAPS))


def allow_gaps(fs: FileSystem, directory: str) -> None:
    """Makes the file, durably. Raises StorageError."""
    path = os.path.join(directory, OFFSET_GAPS)
    with storage_errors(path):
        write_file_durably(fs, path, CONTENT)
