"""The days and times that all readers of a table show: those of the years 1 to 9999, in UTC.

Parquet, Delta and Spark hold many more. But Python has no others, so pyarrow, polars and Spark's own Python raise an
error for them, and DuckDB shows the farthest as infinity.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millrace_pipelines.arrow import Column, Columns

FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01, 9999-12-31
DAY_US = 86_400_000_000
FIRST_MICROSECOND, LAST_MICROSECOND = FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1
BEYOND = "a time beyond the years 1 to 9999"


def is_in_calendar(column: Column | Columns) -> bool:
    """Returns whether all dates, or all timestamps, of a column are of the years 1 to 9999."""
    is_date = pa.types.is_date(column.type)
    first, last = (FIRST_DAY, LAST_DAY) if is_date else (FIRST_MICROSECOND, LAST_MICROSECOND)
    numbers = column.cast(pa.int32() if is_date else pa.int64())
    low, high = (pc.min_max(numbers)[name].as_py() for name in ("min", "max"))
    return low is None or first <= low <= high <= last
