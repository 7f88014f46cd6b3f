"""Groups: which member reads which partitions, and the offsets that the group has committed.

    group              the interface between a group and its shard: the requests that it takes, the effects it returns
    classic/           the classic group protocol as a state table
    consumer/          the consumer group protocol (KIP-848), whose members follow an assignment that the broker makes
    records            keys and values in `__consumer_offsets`, in Kafka's format
    offsets            committed offsets of groups of every type; their expiry (KIP-211)
    shard              the groups of one partition of `__consumer_offsets`: replay, append, timers
    group_coordinator  finds a group's partition, knows which partitions are led here, loads them; lists groups
    membership, commits   what else the handlers call

A handler's request goes to the group that `GroupCoordinator.shard(group_id)` holds, and the effects that come back to
`Shard.perform`. Decisions know neither sockets nor time: the current time is an argument, a timer is an effect, and a
request that waits for its response is an opaque ticket.

A further type of group consists of

* a class with the members of `group.Group`, with its own `type` and listed `state`;
* replayers for its record keys, given to the coordinator as `{key version: replay(shard, key, value)}`, beside those
  of versions 0 to 2; `value` is None for a tombstone, and a replayer keeps its groups in `shard.groups`.

It needs no code for offsets: the shard stores commits, and `Group.check_commit` decides whether one is acceptable.
"""
