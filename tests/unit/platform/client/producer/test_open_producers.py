"""How many producers of a process may be open."""

import pytest

from millrace.client.producer import Producer
from millrace.client.producer.producer import TooManyProducersError


def test_a_process_has_so_many_open_producers_at_most(monkeypatch):
    monkeypatch.setattr("millrace.client.producer.producer.MAX_OPEN_PRODUCERS", 2)
    full = pytest.raises(TooManyProducersError, match="2 producers of this process are open: close those")
    with Producer(broker_list="localhost:1"), Producer(broker_list="localhost:1"), full:
        Producer(broker_list="localhost:1")
    with Producer(broker_list="localhost:1"):
        pass
