"""Groups: who consumes what, and how far they have come (spec E6).

    config       the properties, under Kafka's names
    group        what every type of group answers to: the interface for a new type
    effects      what a group asks of its surroundings: answers, timers, writes
    classic/     the classic protocol (JoinGroup, SyncGroup, …) as a state table
    consumer/    the consumer group protocol (KIP-848), whose members follow what the coordinator decides
    offsets      committed offsets, shared by all types of groups; their expiry (KIP-211)
    records      keys and values in `__consumer_offsets`, in Kafka's own format
    shard        the groups of one partition of `__consumer_offsets`: replay, append, timers
    coordinator  the shell: which partition has a group, which partitions are led here, loading them

The way of a request: a handler asks `Coordinator.shard(group_id)`, gives the event to the group, and hands the
effects that come back to `Shard.perform`. Decisions know neither sockets nor time; the current time is an argument, a
timer an effect, and whoever waits for an answer an opaque ticket.

A second type of group is plugged in by

* a class with the members of `group.Group`, whose `type` and listed `state` are its own;
* replayers for its record keys, given to the coordinator as `{key version: replay(shard, key, value)}`, beside the ones
  for versions 0 to 2; `value` is None for a tombstone, and a replayer keeps its groups in `shard.groups`;
* effects: `Store(records, outcome)` is appended, and when the in-sync replicas have it
  `group.stored(outcome, error, now_ms)` gives the effects that follow; `SetTimer` comes back as
  `group.timer_expired(timer, now_ms)`; an `Answer` goes to its ticket.

Offsets need no work of a second type: commits are stored by the shard, and `Group.check_commit` decides
whether one is acceptable.
"""
