"""The consumer group protocol (KIP-848): the coordinator decides who has what, members follow by heartbeats.

    member.py, group.py        what is known of a group: the sum of its stored records
    records.py                 those records, in Kafka's format
    change.py                  one change of a group, as the records that make it
    heartbeat.py, leave.py     what a heartbeat asks and what it is answered
    target.py, assignors/      who shall have what
    reconciliation.py          how a member gets there, never two with one partition
    classic_members.py         members that still use JoinGroup, SyncGroup and Heartbeat
    migration.py               a classic group becomes a consumer group, and back, while its members go on
    topic_pattern.py, metadata_hash.py, config.py

Everything here is pure but `coordinator.py`, which has the timers and the log.
"""
