"""Requests about stray logs at the admin endpoint of a real broker: what they tell, and what is refused."""

import asyncio
import json
import urllib.error
import urllib.request
from uuid import UUID

import pytest

from millrace.addresses import Address, parse_address
from millrace.client import Admin, Cluster
from millrace.clock import SystemClock
from millrace.ports import free_port
from millrace.testing.broker import BrokerProcess
from millrace.uuids import encode_id
from millrace_broker.admin.endpoint import AdminEndpoint
from millrace_broker.admin.guard import Guard
from millrace_broker.admin.health import Health
from millrace_ops.replicas import adoption
from millrace_ops.replicas.adoption import AdminUnreachableError, AdoptionRefusedError
from millrace_support.admin_requests import JSON

ID = encode_id(UUID(int=7))
PARTITION = {"leader": 1, "leader_epoch": 105, "replicas": [1]}
NEW = {"topic": "new", "topic_id": ID, "first_free_producer_id": 5000, "partitions": [PARTITION]}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as started:
        with Cluster(started.bootstrap) as cluster:
            Admin(cluster).create_topic("there", 1)
        yield started


def asked(url, body=None, token=None):
    """(status, the answer)."""
    headers = JSON if token is None else JSON | {"Authorization": f"Bearer {token}"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers, method="GET" if body is None else "POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        content = error.read()
        return error.code, json.loads(content) if content.startswith(b"{") else content


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"topic": "there"}, 409, "topic there exists by now, with the id "),
        ({"topic": "a/b"}, 400, "Topic name is invalid: 'a/b'"),
        ({"topic": "there", "topic_id": "no id"}, 400, "topic_id: the 22 characters of an id are expected"),
        ({"partitions": [PARTITION | {"leader": 9, "replicas": [9]}]}, 400, "includes broker 9, but no such broker is"),
        ({"partitions": [PARTITION | {"replicas": [1, 1]}]}, 400, "a duplicate, a broker is named more than once"),
        ({"config": {"retention.ms": "soon"}}, 400, "retention.ms"),
        ({"config": {"no.such": "1"}}, 400, "no.such"),
        ({"first_free_producer_id": "many"}, 400, "first_free_producer_id: a number from 0 to"),
    ],
)
def test_an_adoption_that_makes_no_sense_changes_nothing(broker, change, status, message):
    found, answer = asked(f"{broker.admin_url}/strays/adopt", {**NEW, **change}, broker.admin_token)
    assert (found, message in answer["error"]) == (status, True), answer
    with Cluster(broker.bootstrap) as cluster:
        assert set(cluster.metadata(None).topics) == {"there"}


def test_the_id_of_another_topic_is_refused(broker):
    there = asked(f"{broker.admin_url}/strays")[1]["topics"]["there"]
    assert asked(f"{broker.admin_url}/strays/adopt", {**NEW, "topic_id": there}, broker.admin_token) == (
        409,
        {"error": f"the id {there} is that of the topic there"},
    )


def test_a_broker_tells_of_its_stray_logs(broker):
    status, told = asked(f"{broker.admin_url}/strays?topic=there")
    assert (status, told["broker_id"], told["brokers"]) == (200, 1, [1])
    assert (list(told["topics"]), told["strays"], told["offline"]) == (["there"], [], [])
    internal = told["internal_topics"]
    assert internal.keys() == {"__consumer_offsets", "__transaction_state"}
    assert {(one["partitions"], one["config"]["cleanup.policy"]) for one in internal.values()} == {(50, "compact")}
    assert asked(f"{broker.admin_url}/strays?topic=absent")[1]["topics"] == {}
    assert asked(f"{broker.admin_url}/strays?topics=there") == (400, {"error": "topics: unknown field, expected topic"})


def test_producer_ids_go_on_from_a_number(broker):
    url, token = f"{broker.admin_url}/strays/producer-ids", broker.admin_token
    assert asked(url, {"first_free_producer_id": 7000}, token) == (200, {"first_free_producer_id": 7000})
    document = json.loads((broker.data_dir / "latest_producer_id_block").read_text(encoding="utf-8"))
    assert int(document["block_start"]) >= 7000
    assert asked(url, {"first_free_producer_id": -1}, token)[0] == 400
    assert asked(url, {}, token) == (400, {"error": "the body: the field first_free_producer_id is missing"})


@pytest.mark.parametrize("path", ["strays", "strays/adopt", "strays/producer-ids"])
def test_nothing_is_told_or_done_without_the_token_or_before_the_broker_serves(path):
    async def answers():
        endpoint = AdminEndpoint(SystemClock(), lambda: Health((), (), ()), dict)
        host, port = await endpoint.start("127.0.0.1", 0, Guard("hush"))
        url, body = f"http://{host}:{port}/{path}", None if path == "strays" else NEW
        try:
            with_token = await asyncio.to_thread(asked, url, body, "hush")
            return await asyncio.to_thread(asked, url, body), with_token
        finally:
            await endpoint.stop()

    without, with_token = asyncio.run(answers())
    assert without[0] == 401
    assert with_token == (503, {"error": "the broker is still starting"})


@pytest.mark.parametrize(
    ("token", "error", "message"),
    [
        (
            "",
            AdoptionRefusedError,
            "asks for its token; MILLRACE_ADMIN_TOKEN must be what the broker's property admin.token",
        ),
        ("wrong", AdoptionRefusedError, "asks for its token; MILLRACE_ADMIN_TOKEN"),
        ("hush", AdminUnreachableError, "answers: the broker is still starting"),
    ],
)
def test_the_command_says_what_an_endpoint_answers(token, error, message):
    async def answer():
        endpoint = AdminEndpoint(SystemClock(), lambda: Health((), (), ()), dict)
        address = Address(*await endpoint.start("127.0.0.1", 0, Guard("hush")))
        try:
            return await asyncio.to_thread(adoption.AdminEndpoint(address, token).report, "t")
        finally:
            await endpoint.stop()

    with pytest.raises(error, match=message):
        asyncio.run(answer())


def test_an_address_that_is_no_admin_endpoint_is_named(broker):
    admin = parse_address(broker.admin_url.removeprefix("http://"))
    assert adoption.AdminEndpoint(admin, "").report("a/b?c").topic_id is None
    nobody = Address("127.0.0.1", free_port())
    for address in (nobody, parse_address(broker.bootstrap)):
        with pytest.raises(AdminUnreachableError, match=f"the admin endpoint {address}: "):
            adoption.AdminEndpoint(address, "").report("t")
    with pytest.raises(AdoptionRefusedError, match="answers: the body: the field topic is missing"):
        adoption.AdminEndpoint(admin, broker.admin_token).adopt({})
