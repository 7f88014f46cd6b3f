"""The delays of each carrier, kept up to date from the topic of flights: the demo's downstream job.

    partition  carrier  flights  cancelled  departures  departure_delay  arrivals  arrival_delay

One row for each carrier and partition of the topic: a commit rewrites only the rows of its partitions, which are few.
`delays_by_carrier` adds the partitions up. Delays are sums of minutes, those of departure over the flights that
departed, those of arrival over the flights whose delay on arrival is known. A flight that did not depart was cancelled.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from millrace.client.consumer import Message
from millrace_pipelines.arrow import Field
from millrace_pipelines.downstream import micro_batch_job, output_rows

SUMS = ("flights", "cancelled", "departures", "departure_delay", "arrivals", "arrival_delay")
COLUMNS: list[Field] = [pa.field("carrier", pa.string()), *(pa.field(name, pa.int64()) for name in SUMS)]
SCHEMA = pa.schema(COLUMNS)
FIELDS: list[Field] = [
    pa.field("carrier", pa.string()),
    pa.field("dep_time", pa.int64()),
    pa.field("dep_delay", pa.int64()),
    pa.field("arr_delay", pa.int64()),
]
PARSING = pj.ParseOptions(explicit_schema=pa.schema(FIELDS), unexpected_field_behavior="ignore")


class Delays(NamedTuple):
    """The counts and sums of delays, in minutes, of one carrier."""

    flights: int
    cancelled: int
    departures: int
    departure_delay: int
    arrivals: int
    arrival_delay: int

    @property
    def mean_departure_delay(self) -> float | None:
        """Returns the mean delay, in minutes, of the flights that departed; None where none did."""
        return self.departure_delay / self.departures if self.departures else None

    @property
    def mean_arrival_delay(self) -> float | None:
        """Returns the mean delay, in minutes, of the flights whose delay on arrival is known; None without any."""
        return self.arrival_delay / self.arrivals if self.arrivals else None


@micro_batch_job(topic="flights", schema=SCHEMA)
def carrier_delays(rows: pa.Table, messages: Sequence[Message]) -> pa.Table:
    """Flights, cancellations and delays of each carrier, up to date."""
    values = b"\n".join(message.value for message in messages if message.value is not None)
    flights = pj.read_json(io.BytesIO(values), parse_options=PARSING)
    return added_up(pa.concat_tables([rows, each_alone(flights)]))


def each_alone(flights: pa.Table) -> pa.Table:
    """Returns, for each flight, a row of the counts and minutes that it adds to its carrier's row."""
    known = {field.name: pc.cast(pc.is_valid(flights[field.name]), pa.int64()) for field in FIELDS}
    none = pa.scalar(0, pa.int64())
    columns = {
        "carrier": flights["carrier"],
        "flights": known["carrier"],
        "cancelled": pc.cast(pc.is_null(flights["dep_time"]), pa.int64()),
        "departures": known["dep_delay"],
        "departure_delay": pc.coalesce(flights["dep_delay"], none),
        "arrivals": known["arr_delay"],
        "arrival_delay": pc.coalesce(flights["arr_delay"], none),
    }
    return pa.table(columns, schema=SCHEMA)


def added_up(rows: pa.Table) -> pa.Table:
    """Returns the sums of the rows of each carrier, one row for each."""
    sums = rows.group_by("carrier").aggregate([(name, "sum") for name in SUMS])
    return pa.table({"carrier": sums["carrier"], **{name: sums[f"{name}_sum"] for name in SUMS}}, schema=SCHEMA)


def delays_by_carrier(output: str) -> Mapping[str, Delays]:
    """Returns the delays of each carrier in all partitions, from the job's output."""
    return by_carrier(added_up(output_rows(output).select(SCHEMA.names)))


def by_carrier(rows: pa.Table) -> dict[str, Delays]:
    """Returns the rows as `Delays`, by carrier."""
    return {row["carrier"]: Delays(*(row[name] for name in SUMS)) for row in rows.to_pylist()}
