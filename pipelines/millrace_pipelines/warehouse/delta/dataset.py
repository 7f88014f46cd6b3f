"""The rows of a table as pyarrow's dataset, made from the log's list of files.

delta-rs makes one, too, but refuses features of readers that ask nothing of the data files, such as checkpoints of the
second kind, and all deletion vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from millrace_pipelines.arrow import Flags

if TYPE_CHECKING:
    import pyarrow.dataset as ds  # it imports pandas, which only readers of rows need


def dataset_of(
    actions: pa.Table,
    schema: pa.Schema,
    filesystem: pafs.FileSystem,
    path: Callable[[str], str],
    kept: Mapping[str, Flags],
) -> ds.Dataset:
    """Returns the rows of the files that add actions name.

    Args:
        actions: The add actions, as delta-rs flattens them.
        schema: The table's columns.
        filesystem: Where the files are.
        path: Gives the path of a file's name there.
        kept: By file name, the rows that deletion vectors leave of a file; such a file's rows are in memory.
    """
    import pyarrow.dataset as ds  # noqa: PLC0415

    form = ds.ParquetFileFormat()
    folders = [name for name in actions.column_names if name.startswith("partition.")]
    whole: list[ds.Fragment] = []
    left: list[pa.Table] = []
    for action in actions.select(["path", *folders]).to_pylist():
        name = unquote(str(action["path"]))
        file = form.make_fragment(path(name), filesystem=filesystem, partition_expression=_values(action, schema))
        if name in kept:
            left.append(file.to_table(schema=schema, use_threads=False).filter(pa.array(kept[name])))
        else:
            whole.append(file)
    files = ds.FileSystemDataset(whole, schema, form, filesystem)
    return ds.dataset([files, ds.dataset(pa.concat_tables(left))]) if left else files


def _values(action: Mapping[str, object], schema: pa.Schema) -> ds.Expression:
    """Returns what is true of all rows of a file: the values of its folders."""
    import pyarrow.dataset as ds  # noqa: PLC0415

    true = ds.scalar(True)
    for folder, value in action.items():
        name = folder.removeprefix("partition.")
        if name != folder:
            column = ds.field(name)
            kind = schema.field(name).type
            true &= column.is_null() if value is None else column == pa.scalar(value, kind)
    return true
