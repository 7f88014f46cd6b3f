"""Transactions: what a producer writes to several partitions counts altogether or not at all (KIP-98, KIP-890).

    state                    the states of a transaction, the table of what follows in each, and what is stored of one
    records                  keys and values in `__transaction_state`, in Kafka's format
    transaction              one transactional id, which that table moves: requests in, effects out
    markers                  ends transactions in the partitions that this broker leads, and has other leaders do so
    shard                    the transactions of one partition of `__transaction_state`: replay, append, markers
    transaction_coordinator  finds a transactional id's partition, knows which are led here, loads and lists them
    admission                whether a partition may take a producer's records, which another broker may know
    hanging                  transactions that are open in a partition but unknown to the coordinator

The record PrepareCommit or PrepareAbort is the decision. A crash before it leaves a transaction that its producer ends,
or its timeout does. After it, the marker of every partition is written, again where it may be missing, and then the
record CompleteCommit or CompleteAbort.
"""
