"""Writes three records and an offset in a transaction, and dies on the way: `BOOTSTRAP TOPIC API WHEN`.

It is killed as by `kill -9` at the first request of this API, when it is about to send it, has just sent it, or has
read the answer.
"""

import os
import signal
import sys

from millrace import Producer
from millrace.client.connection import Connection
from millrace.client.producer.link import Link
from millrace.wire.api import ApiKey

BEFORE, SENT, ANSWERED = "before", "sent", "answered"


def dies_around(owner, name, api_of, *, answers):
    """Makes a method of the client's connections die at its first call for the API that `api_of` finds."""
    method = getattr(owner, name)

    def die(when, arguments):
        if api_of(arguments) == ApiKey[sys.argv[3]] and sys.argv[4] == when:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying(*arguments, **options):
        if not answers:
            die(BEFORE, arguments)
        result = method(*arguments, **options)
        die(ANSWERED if answers else SENT, arguments)
        return result

    setattr(owner, name, dying)


dies_around(Connection, "_send", lambda arguments: arguments[1].key, answers=False)
dies_around(Connection, "_receive", lambda arguments: arguments[1], answers=True)
dies_around(Link, "post", lambda _: ApiKey.PRODUCE, answers=False)
dies_around(Link, "_decode", lambda _: ApiKey.PRODUCE, answers=True)

bootstrap, topic = sys.argv[1:3]
with Producer(broker_list=bootstrap, producer_type="async", transactional_id=topic) as producer:
    producer.init_transactions()
    with producer.transaction():
        for number in range(3):
            producer.send(topic, b"of the dead %d" % number, partition=number)
        producer.flush()
        producer.send_offsets_to_transaction({(topic, 0): 5}, topic)
sys.exit("it lives still")
