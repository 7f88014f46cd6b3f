"""Transactions: what a producer writes to several partitions counts altogether or not at all (KIP-98, KIP-890).

    state                    the states of a transaction, and the table of what follows in each
    metadata                 what is stored of a transactional id
    records                  keys and values in `__transaction_state`, in Kafka's format
    transaction              one transactional id, which that table moves: requests in, effects out
    effects                  the effects that it returns: responses, writes, markers
    markers                  ends transactions in the partitions that this broker leads
    marker_sender            sends markers to the leaders of all partitions of a transaction
    shard                    the transactions of one partition of `__transaction_state`: replay, append, markers
    transaction_coordinator  finds a transactional id's partition, knows which partitions are led here, loads them
    admission                whether a partition may take a producer's records
    verification             waits for the coordinator's response to that, and guards the append until then
    partition_requests       asks a coordinator on another broker for that response
    overview                 listing and describing
    hanging                  transactions that are open in a partition but unknown to the coordinator

The record PrepareCommit or PrepareAbort is the decision. A crash before it leaves a transaction that its producer ends,
or its timeout does. After it, the marker of every partition is written, again where it may be missing, and then the
record CompleteCommit or CompleteAbort.
"""
