"""One member of a group in a process of its own: `connector_member.py PROPERTIES_JSON TOPIC EVENTS_FILE`.

Each event of ownership goes to the file at once, as a line of JSON. Shuts down cleanly when its stdin ends.
"""

import json
import os
import sys
import threading

from millrace.client.consumer import ConsumerConnector, ConsumerTimeoutError


def main():
    properties, topic, path = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def observe(event):
        fields = event._replace(partition=str(event.partition))._asdict()
        os.write(out, (json.dumps(fields) + "\n").encode())

    ends = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ends.set()), daemon=True).start()
    with ConsumerConnector({**properties, "consumer.timeout.ms": "200"}, observe=observe) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        while not ends.is_set():
            try:
                next(stream)
            except ConsumerTimeoutError:
                continue


if __name__ == "__main__":
    main()
