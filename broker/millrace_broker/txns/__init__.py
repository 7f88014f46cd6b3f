"""Transactions: what producers write in several partitions counts altogether or not at all (spec G3; KIP-98, KIP-890).

    state        the states of a transaction, and from which each is reached
    metadata     what is kept of a transactional id
    records      keys and values in `__transaction_state`, in Kafka's own format
    transaction  one transactional id as a state table: requests in, effects out
    effects      what it asks of its surroundings: answers, writes, markers
    markers      ends transactions in the partitions that they have written to
    shard        the transactions of one partition of `__transaction_state`: replay, append, markers
    coordinator  the shell: which partition has an id, which partitions are led here, loading them
    admission    whether a partition may take a producer's records
    overview     listing and describing
    hanging      transactions that are open in a partition and that no coordinator knows

The decision is the record PrepareCommit or PrepareAbort. Before it a crash leaves a transaction that its producer ends,
or its timeout; after it the marker of every partition is written, again where that is not known to have been done,
and then the record CompleteCommit or CompleteAbort.
"""
