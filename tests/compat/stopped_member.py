"""A member of a group that stops itself: `stopped_member.py PROPERTIES_JSON TOPIC COUNT API`.

It reads COUNT messages, commits them, and prints the outcome: "committed" or "lost". Right before its first request of
API it prints the id and the password of its session with ZooKeeper as JSON, and stops itself by SIGSTOP. InitProducerId
is requested before the first message is read; then it prints "joined" instead of an outcome.
"""

import json
import os
import signal
import sys

from millrace.client.connection import Connection
from millrace.client.consumer import ConsumerConnector, OwnershipLostError
from millrace.wire.api import ApiKey
from millrace.zk.session import ZooKeeperSession


def stop_before(api_key):
    request, start, sessions = Connection.request, ZooKeeperSession.start, []

    def remembered(self):
        sessions.append(self)
        start(self)

    def stopping(self, asked, fields, **options):
        if asked.key == api_key:
            Connection.request = request
            session_id, password = sessions[-1].client_id
            sys.stdout.write(f"{json.dumps([session_id, password.hex()])}\n")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGSTOP)
        return request(self, asked, fields, **options)

    Connection.request = stopping
    ZooKeeperSession.start = remembered


def main():
    properties, topic, count, api_key = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), ApiKey[sys.argv[4]]
    stop_before(api_key)
    with ConsumerConnector(properties) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        if api_key is ApiKey.INIT_PRODUCER_ID:
            sys.stdout.write("joined\n")
            return
        for _ in range(count):
            next(stream)
        try:
            connector.commit_offsets()
        except OwnershipLostError:
            sys.stdout.write("lost\n")
        else:
            sys.stdout.write("committed\n")


if __name__ == "__main__":
    main()
