"""Makes docs/protocol.md from the registry of the handlers: `python -m millrace_tools.protocol_page`.

The page goes to the standard output. A test compares the page in docs with it, so that it is always up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from millrace.times import SECOND_MS
from millrace.wire.api import FIRST_FLEXIBLE_VERSION
from millrace.wire.decoder import MAX_ELEMENTS
from millrace.wire.kio_schemas import api_names
from millrace_broker.handlers.api import Api
from millrace_broker.handlers.cluster_registry import CLUSTER_APIS
from millrace_broker.handlers.registry import APIS
from millrace_broker.net.long_requests import TURN_S

MEMBER_APIS = {**APIS, **CLUSTER_APIS}
"""All that a member of a cluster serves."""

COSTS = Path(__file__).with_name("dearest_requests.tsv")
SEPARATOR = "\t"

HEAD = """\
# The Kafka protocol, as it is served

Made by `python -m millrace_tools.protocol_page` from the registry of the handlers; edit nothing here.

ApiVersions tells clients exactly this table; a standalone broker leaves out what a controller and brokers of a cluster
send to one another (keys 4 to 7, 56 and 67). Versions from the first flexible one on have compact lengths and tagged
fields (KIP-482). What an API refuses is answered with the error code in brackets; unknown topics, partitions, offsets
and epochs have their own codes and are not listed.

| key | API | versions | flexible from | refused |
|---:|---|---|---:|---|
"""

TAIL = """
## What is not in the table

| what comes in | what happens |
|---|---|
| an API key or a version that is not served | the connection is closed, as Kafka does: no answer could be understood; \
but ApiVersions in an unknown version is answered in v0's form |
| a frame above `socket.request.max.bytes`, or bytes that are no request | the connection is closed |
| Produce with acks=0 that fails | the connection is closed: there is no answer to tell it in |

APIs of the protocol that are not served: {missing}.

## Millrace's own

ApiVersions does not tell of these APIs, whose keys lie far above those of Kafka. They are for Millrace's own tools, and
may be others in a later release.

| key | API | versions | flexible from | refused |
|---:|---|---|---:|---|
{own}
AppendMirrored brings the batches of another cluster's partition to a topic with the property `mirror.source`
(docs/logs.md). It needs CLUSTER_ACTION on the cluster, as followers do.

```text
request     timeout ms i32, topics [name, partitions [index i32, log start offset i64, log end offset i64, records,
                                                      ends mirroring bool]]
response    throttle time ms i32, topics [name, partitions [index i32, error code i16, error message,
                                                            log start offset i64, log end offset i64,
                                                            high watermark i64]]
```

The log end offset of the request is where the sender expects the log to end. If it ends elsewhere, nothing is appended,
and the response has the true end. -1, with no records, ends the mirroring wherever the log ends. The log start offset
is where an empty log is to begin, -1 to leave it.

## What a request costs at most

A client's request has at most {elements:,} elements in all of its arrays; one with more is malformed, and its
connection is closed. A controller, which tells of all partitions of the cluster, may send more. Requests above 4 KiB,
those that look for times, and those for all topics where there are many, are handled in turns of {turn_ms:.0f} ms,
between which all others are served. One of a connection's long requests is handled at a time.

The dearest request of each API has arrays as long as that, "wide" in the outermost arrays and "deep" in the inner ones.
Beside it another client sent Produce, Metadata and Fetch, one at a time (`millrace bench stalls`, on two cores with
nothing else at work). A request that is refused is answered as long as one that is carried out.

| API | dearest request | it takes, ms | the other client's p99.9, ms | its longest wait, ms |
|---|---|---:|---:|---:|
{costs}
## What a produced batch must be

The leader reads every record before it takes a batch, in compressed batches too. What is wrong with a batch whose CRC
is right is answered with INVALID_RECORD, as by Kafka, and the batch is not stored. A test sends what is below to Apache
Kafka 3.9 and here, and compares the answers (`tests/compat/test_lying_batches.py`).

| rule | Kafka 3.9 |
|---|---|
| as many records as the header counts, and nothing behind them | the same |
| a record's fields end where its length says | the same, but in a compressed batch the length is not looked at |
| fields lie in their record; a header has a key, which need not be UTF-8 | the same |
| -1 alone is the length of null | any negative length is |
| offset deltas are 0, 1, 2 and so on | is not looked at in plain batches; UNKNOWN_SERVER_ERROR for compressed ones |
| the block of records is of the batch's codec | UNKNOWN_SERVER_ERROR |
| a batch of a producer has an epoch | any epoch but those below -1 |
| in a compacted topic every record has a key; times are within the topic's limits | the same records are named |
| the largest time in the header | becomes that of the records, as here |

A compressed batch is read chunk by chunk, so what it holds takes no memory; but zstd needs its window, of up to
128 MiB. A request whose batches hold more than 512 KiB is read on two threads of their own, and the later requests of
its connection wait behind it. Followers do not check records again.
"""


def render(apis: Mapping[int, Api]) -> str:
    """Returns the whole page."""
    names = api_names()
    told = {key: _row(apis[key], names.get(key, apis[key].key.name)) for key in sorted(apis) if apis[key].is_told}
    own = "".join(_row(apis[key], names[key]) for key in sorted(apis.keys() - told.keys()))
    missing = ", ".join(f"{name} ({key})" for key, name in sorted(names.items()) if key not in apis)
    turn_ms = TURN_S * SECOND_MS
    told_of = TAIL.format(missing=missing, own=own, costs=_costs(), elements=MAX_ELEMENTS, turn_ms=turn_ms)
    return HEAD + "".join(told.values()) + told_of


def _costs() -> str:
    _, *lines = COSTS.read_text(encoding="utf-8").splitlines()
    return "".join(f"| {' | '.join(line.split(SEPARATOR))} |\n" for line in lines)


def _row(api: Api, name: str) -> str:
    minimum, maximum = api.versions
    return f"| {api.key} | {name} | {minimum}-{maximum} | {FIRST_FLEXIBLE_VERSION[api.key]} | {api.refuses} |\n"


def main() -> None:
    """Writes the page to stdout."""
    sys.stdout.write(render(MEMBER_APIS))


if __name__ == "__main__":
    main()
