"""The rows that other engines deleted beside the data files: by files of positions, or by vectors of format version 3.

Either names a data file by its path, which is never given to another file, and rows of it by their numbers. Files that
delete by equal values are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.snapshots import Snapshot

from millrace_pipelines.arrow import Flags, texts_of
from millrace_pipelines.warehouse.errors import TableRefusedError
from millrace_pipelines.warehouse.iceberg.manifests import ListedFile, has_live_files, manifests_of

PATH, POSITION = "file_path", "pos"
Positions = npt.NDArray[np.int64]


def kept_rows(snapshot: Snapshot | None, files: Mapping[str, ListedFile], io: FileIO, where: str) -> dict[str, Flags]:
    """Returns masks of the rows that are left in those of a snapshot's files, by name, of which some are deleted.

    Raises:
        TableRefusedError: Some are deleted in a way that is not read.
    """
    names, kept = {file.path: name for name, file in files.items()}, dict[str, Flags]()
    for path, positions in _deleted(snapshot, io, where):
        if (name := names.get(path)) is not None:
            kept.setdefault(name, np.ones(files[name].rows, np.bool_))[positions] = False
    return kept


def _deleted(snapshot: Snapshot | None, io: FileIO, where: str) -> Iterator[tuple[str, Positions]]:
    for manifest in manifests_of(snapshot, io):
        if manifest.content == ManifestContent.DELETES and has_live_files(manifest):
            for entry in manifest.fetch_manifest_entry(io):
                yield from _positions(entry.data_file, io, where)


def _positions(file: IcebergFile, io: FileIO, where: str) -> Iterator[tuple[str, Positions]]:
    """Yields the paths of data files, each with numbers of rows that a file deletes of it."""
    is_read = file.content == DataFileContent.POSITION_DELETES
    if not is_read or file.file_format not in (FileFormat.PARQUET, FileFormat.PUFFIN):
        raise TableRefusedError(
            f"{where}: another engine deleted rows by equality, or in a format that Millrace does not read, such as by "
            f"{file.file_path}. Way on: Spark's procedure rewrite_data_files with delete-file-threshold 1, then it "
            "goes on. Nothing was changed"
        )
    with io.new_input(file.file_path).open() as source:
        if file.file_format == FileFormat.PUFFIN:
            for vector in deletion_vectors_from_puffin_file(PuffinFile(source.read())):
                yield vector.referenced_data_file, vector.to_vector().to_numpy().astype(np.int64)
            return
        rows = pq.read_table(cast("pa.NativeFile", source), columns=[PATH, POSITION])
    for path in texts_of(rows.column(PATH).unique()):
        yield path, rows.filter(pc.equal(rows.column(PATH), pa.scalar(path))).column(POSITION).to_numpy()
