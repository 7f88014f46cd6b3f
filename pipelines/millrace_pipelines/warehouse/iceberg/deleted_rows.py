"""The rows of data files that are deleted beside them: by vectors of format version 3, or by files of positions.

Either names a data file by its path, which is never given to another file, and rows of it by their numbers. A vector is
all that deletes rows of its file, and is read when that is; files of positions, which only other engines write, are
read at once. Files that delete by equal values are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, FileFormat

from millrace.fs import FileSystem
from millrace_pipelines.arrow import Flags, texts_of
from millrace_pipelines.warehouse.errors import TableRefusedError
from millrace_pipelines.warehouse.iceberg.manifests import ListedDelete, ListedFile
from millrace_pipelines.warehouse.stores.addresses import store_at
from millrace_pipelines.warehouse.table.vector_bytes import kept_rows, read_part, rows_of_vector

PATH, POSITION = "file_path", "pos"
Positions: TypeAlias = npt.NDArray[np.int64]
Packed: TypeAlias = Mapping[str, tuple[int, npt.NDArray[np.uint8]]]
"""The number of rows, and their bits, by the names of files."""


class Vector(NamedTuple):
    """A deletion vector of a data file.

    Attributes:
        name: The name of the Puffin file that has it.
        offset: Where it begins in that file.
        size_bytes: Its size.
        deleted: How many rows of the data file it deletes.
        rows: How many rows the data file has.
    """

    name: str
    offset: int
    size_bytes: int
    deleted: int
    rows: int


class Masks(dict[str, Flags]):
    """Masks of rows by the names of their files; pickled, for tasks, a row is a bit."""

    def __reduce__(self) -> tuple[Callable[..., Masks], tuple[Packed]]:
        """Returns how the masks are made again of bits."""
        return _unpacked, ({name: (len(rows), np.packbits(rows)) for name, rows in self.items()},)


def _unpacked(packed: Packed) -> Masks:
    return Masks({name: np.unpackbits(bits, count=rows).astype(np.bool_) for name, (rows, bits) in packed.items()})


class KeptRows(Mapping[str, Flags]):
    """For each data file of which rows are deleted, by name, a mask of those that are left.

    Args:
        location: The table's location.
        fs: The disk of a table in a folder.
        vectors: The vectors by the names of their data files.
        masks: What files of positions leave of other files.

    Raises:
        WarehouseError: A vector is damaged, or not where it can be read.
    """

    def __init__(self, location: str, fs: FileSystem, vectors: Mapping[str, Vector], masks: Masks) -> None:
        self._location = location
        self._fs = fs
        self._vectors = vectors
        self._masks = masks

    def __getitem__(self, name: str) -> Flags:
        if (vector := self._vectors.get(name)) is None:
            return self._masks[name]
        where = f"{self._location}: the deletion vector {vector.name}"
        content = read_part(store_at(self._location, self._fs), vector.name, vector.offset, vector.size_bytes, where)
        return kept_rows(vector.rows, rows_of_vector(content, vector.deleted, where), f"{self._location}: {name}")

    def __contains__(self, name: object) -> bool:
        return name in self._vectors or name in self._masks

    def __iter__(self) -> Iterator[str]:
        yield from self._vectors
        yield from self._masks

    def __len__(self) -> int:
        return len(self._vectors) + len(self._masks)

    def rows_of(self, name: str) -> int:
        """Returns how many rows are left of a file of which some are deleted."""
        vector = self._vectors.get(name)
        return int(self._masks[name].sum()) if vector is None else vector.rows - vector.deleted

    def what_deletes(self, name: str) -> Vector | bytes | None:
        """Returns what deletes rows of a file, to be compared with another version's; None where nothing does."""
        if name in self._vectors:
            return self._vectors[name]
        return np.packbits(self._masks[name]).tobytes() if name in self._masks else None


def find_kept_rows(
    deletes: Iterable[ListedDelete],
    files: Mapping[str, ListedFile],
    io: FileIO,
    *,
    where: str,
    name_of: Callable[[str], str],
    location: str,
    fs: FileSystem,
) -> KeptRows:
    """Returns masks of the rows that are left of those files of a version of which some are deleted.

    Args:
        deletes: What the version's manifests list.
        files: Its data files by name.
        io: Its files.
        where: What an error calls the table.
        name_of: Returns the name of a file, given its path.
        location: Where the table's files are.
        fs: The disk of a table in a folder.

    Raises:
        TableRefusedError: Some are deleted in a way that is not read.
    """
    names, vectors, masks = {file.path: name for name, file in files.items()}, dict[str, Vector](), Masks()
    for one in deletes:
        _check_is_read(one, where)
        if one.file_format == FileFormat.PUFFIN:
            if (name := names.get(one.referenced or "")) is not None:
                vectors[name] = Vector(name_of(one.path), one.offset, one.size_bytes, one.rows, files[name].rows)
            continue
        for path, positions in _positions(one, io):
            if (name := names.get(path)) is not None:
                masks.setdefault(name, np.ones(files[name].rows, np.bool_))[positions] = False
    return KeptRows(location, fs, vectors, Masks({one: mask for one, mask in masks.items() if one not in vectors}))


def _check_is_read(one: ListedDelete, where: str) -> None:
    is_read = one.content == DataFileContent.POSITION_DELETES
    if not is_read or one.file_format not in (FileFormat.PARQUET, FileFormat.PUFFIN):
        raise TableRefusedError(
            f"{where}: another engine deleted rows by equality, or in a format that Millrace does not read, such as by "
            f"{one.path}. Way on: Spark's procedure rewrite_data_files with delete-file-threshold 1, then it goes on. "
            "Nothing was changed"
        )


def _positions(one: ListedDelete, io: FileIO) -> Iterator[tuple[str, Positions]]:
    """Yields the paths of data files, each with numbers of rows that a file of positions deletes of it."""
    with io.new_input(one.path).open() as source:
        rows = pq.read_table(cast("pa.NativeFile", source), columns=[PATH, POSITION])
    for path in texts_of(rows.column(PATH).unique()):
        yield path, rows.filter(pc.equal(rows.column(PATH), pa.scalar(path))).column(POSITION).to_numpy()
