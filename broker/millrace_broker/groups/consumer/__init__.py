"""The consumer group protocol (KIP-848): the broker decides which member has what, members follow by heartbeats.

    events                   what happens to a group, what its members are answered
    member, state, facts     what is known of a group: the sum of its stored records
    records, flexible        those records, in Kafka's format
    change                   one change of a group, as the records that make it
    heartbeat                what ConsumerGroupHeartbeat changes
    target, assignors/       which partitions each member is to have
    reconciliation           how a member gets there, so that no partition ever has two owners
    classic_members          members that still use JoinGroup, SyncGroup and Heartbeat
    migration                a classic group becomes a consumer group, and back, while its members go on
    decisions, timers        the state table: an event and the state give an outcome
    consumer_group           the group in its shard: keeps events in line, applies outcomes
    consumer_groups          makes groups when a member joins or records are read, and finds them
    topic_pattern, metadata_hash, embedded_protocol

A decision works on a copy of the state and yields records; once these are stored, the copy becomes the group's state.
"""
