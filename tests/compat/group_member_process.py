"""A member of a group in a process of its own: `group_member_process.py BOOTSTRAP GROUP SESSION_TIMEOUT_MS`.

It prints what `poll` returns and what becomes of it, a line each. At a line on its standard input it commits an offset
by a transaction, waits for another line, and commits again, without a look at its assignment in between.
"""

import select
import sys

from millrace import Producer
from millrace.client import Cluster
from millrace.client.group_member import GroupMember
from millrace.client.producer import TransactionFailedError


def say(what):
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def commit(producer, group, metadata):
    producer.begin_transaction()
    try:
        producer.send_offsets_to_transaction({(group, 0): 1}, metadata)
        producer.commit_transaction()
    except TransactionFailedError as error:
        producer.abort_transaction()
        return f"refused {error.__cause__.broker_code}"
    return "committed"


def main():
    bootstrap, group, session_timeout_ms = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with (
        Cluster(bootstrap) as cluster,
        Producer(broker_list=bootstrap, transactional_id=f"{group}-process") as producer,
        GroupMember(
            cluster,
            group,
            protocol_type="test",
            protocol="share",
            metadata=b"process",
            assign=lambda members: dict.fromkeys(members, b",".join(sorted(members.values()))),
            on_revoked=lambda: say("revoked"),
            session_timeout_ms=session_timeout_ms,
        ) as member,
    ):
        producer.init_transactions()
        while True:
            if select.select([sys.stdin], [], [], 0.02)[0]:
                if not sys.stdin.readline():
                    return
                say(commit(producer, group, member.group_metadata))
                sys.stdin.readline()
                say(commit(producer, group, member.group_metadata))
            assignment = member.poll()
            if assignment is not None:
                say(assignment.decode())


if __name__ == "__main__":
    main()
