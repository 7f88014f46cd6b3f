"""Every API that is served is driven by at least two clients: by what the broker has counted while their tests ran.

Runs behind the others of this folder, and only where all of them ran. The table of the README is held to the same.
"""

from pathlib import Path

import pytest

from millrace.wire.api import ApiKey
from millrace_broker.handlers.registry import APIS

README = Path(__file__).parent / "README.md"
CLIENTS = {
    "confluent-kafka": "confluent_kafka",
    "kafka-python": "kafka_python",
    "aiokafka": "aiokafka",
    "kafkajs": "kafkajs",
    "platformatic": "platformatic",
    "kcat": "kcat",
    "Java": "java_tools",
    "Spark": "spark",
}
TRANSACTIONS = {24, 25, 26, 27, 28, 65, 66}  # their tests say which clients drive them
SECURITY = {17, 29, 30, 31, 36, 38, 39, 40, 41, 51}  # likewise, in `test_with_security.py`
SOMETIMES = {ApiKey.HEARTBEAT}  # sent by a member that stays for a while
OF_OUR_OWN = {ApiKey.APPEND_MIRRORED}
SERVED = sorted(ApiKey(key) for key in APIS if key not in TRANSACTIONS | SECURITY | OF_OUR_OWN)


@pytest.fixture(scope="module")
def measured(driven, pytestconfig):
    """The APIs by client, where every client's tests have run."""
    if pytestconfig.option.keyword:
        pytest.skip("only some of the clients' tests have run")
    missing = [name for name, file in CLIENTS.items() if not driven.get(file)]
    if missing:
        pytest.skip(f"the tests of {', '.join(missing)} have not run before")
    return {name: driven[file] for name, file in CLIENTS.items()}


def table():
    """API by client, as the README has them."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in README.read_text().splitlines() if "|" in line]
    (_, *clients), _, *lines = rows
    by_name = {"".join(word.capitalize() for word in key.name.split("_")): key for key in ApiKey}
    return {client: {by_name[name] for name, *marks in lines if marks[column]} for column, client in enumerate(clients)}


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
def test_an_api_is_driven_by_two_clients(measured, key):
    assert len([name for name, apis in measured.items() if key in apis]) >= 2


def test_the_table_of_clients_is_what_was_measured(measured):
    for name, apis in table().items():
        assert apis - measured[name] - SOMETIMES == set(), name


def test_the_table_of_clients_has_every_api_twice():
    clients = table()
    assert list(clients) == list(CLIENTS)
    few = [key.name for key in SERVED if sum(key in apis for apis in clients.values()) < 2]
    assert few == []
