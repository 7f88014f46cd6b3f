"""One member of a group that ZooKeeper coordinates: `connector_process.py PROPERTIES_JSON TOPIC [FAULT]`.

Writes each event of ownership, and each value that it is handed, to stdout at once, as a line of JSON. Shuts down
cleanly when its stdin ends.
"""

import json
import os
import sys
import threading
import time

from millrace.client.consumer import ConsumerConnector, ConsumerTimeoutError
from millrace.client.consumer.streams import ConsumerStream, Feed

SLUGGISH_S = 0.1


def tell(fields):
    os.write(sys.stdout.fileno(), (json.dumps(fields) + "\n").encode())


def observe(event):
    tell(event._replace(partition=str(event.partition))._asdict())


def gives_nothing_up():
    """Goes on handing out queued messages, slowly, after another member has claimed their partition."""
    Feed.stop = ConsumerStream.drop = lambda *_: None
    take = ConsumerStream.__next__
    ConsumerStream.__next__ = lambda self: (time.sleep(SLUGGISH_S), take(self))[1]


def begins_behind():
    """Skips the first message after the committed offset, where another member has committed one."""
    begin = Feed.__init__

    def begin_behind(self, partition, ownership, stream, offset):
        begin(self, partition, ownership, stream, offset and offset + 1)

    Feed.__init__ = begin_behind


FAULTS = {fault.__name__: fault for fault in (gives_nothing_up, begins_behind)}


def main(properties, topic, fault=None):
    if fault:
        FAULTS[fault]()
    ends = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ends.set()), daemon=True).start()
    with ConsumerConnector({**json.loads(properties), "consumer.timeout.ms": "200"}, observe=observe) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        while not ends.is_set():
            try:
                one = next(stream)
            except ConsumerTimeoutError:
                continue
            tell({"kind": "value", "partition": f"{topic}-{one.partition}", "offset": one.offset,
                  "value": int(one.value)})  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
