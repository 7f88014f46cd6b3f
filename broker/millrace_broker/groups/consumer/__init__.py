"""The consumer group protocol (KIP-848): the coordinator decides who has what, members follow by heartbeats.

    member, state            what is known of a group: the sum of its stored records
    records, flexible        those records, in Kafka's format
    change                   one change of a group, as the records that make it
    heartbeat                what a heartbeat asks and what it is answered
    target, assignors/       who shall have what
    reconciliation           how a member gets there, never two with one partition
    classic_members          members that still use JoinGroup, SyncGroup and Heartbeat
    migration                a classic group becomes a consumer group, and back, while its members go on
    group                    a group in its shard: requests and timers in, effects out
    coordinator              makes groups when a member joins or records are read, and finds them
    topic_pattern, metadata_hash, embedded_protocol

A decision works on a copy of the state and yields records; once these are stored, the copy is the group.
"""
