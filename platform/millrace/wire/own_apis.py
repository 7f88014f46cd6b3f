"""The messages of Millrace's own API, which Kafka has none like and `kio` no schema for.

AppendMirrored (key 30000) brings the batches of another cluster's partition to a mirrored one, with the offsets that
they have there. `log_end_offset` in the request is where the sender takes the log to end: where it ends elsewhere,
nothing is appended, and the response tells the end. `log_start_offset` is where an empty log begins, -1 to leave that.
With `ends_mirroring` the batches are followed by those that end the mirroring (`records.control`).

The API is not among those that ApiVersions tells, so that no client meets a key that Kafka's protocol does not have. A
broker without it closes the connection. Its declaration is like those of `wire.controller_apis`.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace.records.batch import NO_OFFSET
from millrace.wire.api import ApiKey, VersionRange
from millrace.wire.controller_apis import CONTROLLER_APIS, ERROR_CODE, PARTITION_INDEX, DeclaredApi, Field, Structure

MIRRORED_PARTITION = Structure(
    "MirroredPartition",
    (
        PARTITION_INDEX,
        Field("log_start_offset", "int64", default=NO_OFFSET),
        Field("log_end_offset", "int64"),
        Field("records", "records", is_nullable=True),
        Field("ends_mirroring", "bool", default=False),
    ),
)
MIRRORED_TOPIC = Structure(
    "MirroredTopic", (Field("name", "string"), Field("partitions", MIRRORED_PARTITION, is_array=True))
)
APPEND_MIRRORED_REQUEST = Structure(
    "AppendMirroredRequest", (Field("timeout_ms", "int32"), Field("topics", MIRRORED_TOPIC, is_array=True))
)
APPENDED_PARTITION = Structure(
    "AppendedPartition",
    (
        PARTITION_INDEX,
        ERROR_CODE,
        Field("error_message", "string", is_nullable=True),
        Field("log_start_offset", "int64"),
        Field("log_end_offset", "int64"),
        Field("high_watermark", "int64"),
    ),
)
APPENDED_TOPIC = Structure(
    "AppendedTopic", (Field("name", "string"), Field("partitions", APPENDED_PARTITION, is_array=True))
)
APPEND_MIRRORED_RESPONSE = Structure(
    "AppendMirroredResponse", (Field("throttle_time_ms", "int32"), Field("topics", APPENDED_TOPIC, is_array=True))
)

OWN_APIS: Mapping[int, DeclaredApi] = {
    ApiKey.APPEND_MIRRORED: DeclaredApi(VersionRange(0, 0), APPEND_MIRRORED_REQUEST, APPEND_MIRRORED_RESPONSE),
}
DECLARED_APIS: Mapping[int, DeclaredApi] = {**CONTROLLER_APIS, **OWN_APIS}
