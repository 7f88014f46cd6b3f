"""Dead letters: records that don't fit the declared payload, kept in `<table>__dead_letters`, each exactly once.

The dead letters are another table (the envelope, then `error`, `reason`, `schema_id`, `load_id`, `ledger`, `replay`)
with its own ledger under the same application ids; the first load with a declared schema creates it. A load with dead
letters commits them first, then the rows; each commit is a compare-and-swap on its own ledger:

    crash before both        neither ledger has moved, and the next load does everything again
    crash between the two    the dead letters' ledger is ahead, and the next load reads the range again: a record that
                             is a dead letter already stays one, whatever the schema has become since; one that is not
                             becomes one if it doesn't fit now

So a crash neither loses nor doubles a record. A load without dead letters leaves this ledger behind the table's: there
are none at the offsets between. Letters that decode later are appended to the rows by a replay.
"""
