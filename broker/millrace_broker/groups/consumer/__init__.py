"""The consumer group protocol (KIP-848): the broker decides which member has what, members follow by heartbeats.

    events               what happens to a group, what its members are answered, and their timers
    member, state        what is known of a group: the sum of its stored records
    records              those records, in Kafka's format
    change, assignors    one change of a group as the records that make it: targets, and how members get there
    heartbeat            what ConsumerGroupHeartbeat changes
    classic_members      members that still use JoinGroup, SyncGroup and Heartbeat
    decisions            the state table: an event and the state give an outcome; migration from and to classic groups
    consumer_groups      finds and makes groups; in each, events wait in line, and outcomes are applied

A decision works on a copy of the state and yields records; once these are stored, the copy becomes the group's state.
"""
