"""The benchmark of stalls in its shortest form: every kind of request is sent, accepted, and measured."""

import pytest

from millrace.wire.api import ApiKey
from millrace.wire.kio_schemas import Direction, schema
from millrace.wire.schema import walker
from millrace_benchmarks.dear_requests import NOT_BY_ENTRIES, SPARE_ELEMENTS, dear_requests
from millrace_benchmarks.stalls import StallsEffort, run
from millrace_broker.handlers.registry import APIS

SHORTEST = StallsEffort(
    elements=600,
    seconds=0.1,
    records=3300,
    bomb_bytes=1 << 20,
    in_flight=50,
    half_sent=20,
    sync_s=0.01,
    topics=3,
    apis=frozenset({ApiKey.FETCH, ApiKey.PRODUCE}),
)
WITHOUT_ARRAYS = {
    ApiKey.HEARTBEAT,
    ApiKey.API_VERSIONS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_CLUSTER,
}


def test_each_row_is_measured(tmp_path):
    figures = run(tmp_path, SHORTEST)
    rows = [figure.name.removeprefix("beside ").removesuffix(": p99.9") for figure in figures[::5]]
    assert rows[0] == "nothing"
    for row in (
        "LIST_OFFSETS, a gzip bomb",
        "METADATA, many in flight",
        "FETCH, wide",
        "PRODUCE, deep, no rights",
        "PRODUCE, synced by a slow disk",
    ):
        assert row in rows
    assert all(figure.value >= 0 for figure in figures if "memory" not in figure.name)


@pytest.mark.parametrize("elements", [100, 1000])
def test_each_api_with_arrays_has_a_request(elements):
    found = {request.api_key for request in dear_requests(elements)}
    assert {api.key for api in APIS.values()} - found == WITHOUT_ARRAYS | NOT_BY_ENTRIES


@pytest.mark.parametrize("elements", [1000, 4000])
def test_each_request_has_nearly_as_many_elements_as_it_may_have(elements):
    for request in dear_requests(elements):
        is_flexible, fields = schema(request.api_key, request.version, Direction.REQUEST)
        walk = walker(fields, is_flexible=is_flexible)
        walk(request.message, elements + SPARE_ELEMENTS)
        with pytest.raises(ValueError, match="elements"):
            walk(request.message, elements * 9 // 10)
