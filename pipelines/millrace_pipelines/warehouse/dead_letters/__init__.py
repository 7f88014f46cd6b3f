"""Records that don't fit the declared payload: kept beside the table at `<table>__dead_letters`, each exactly once.

The dead letters are a table of their own (the envelope, then `error`, `reason`, `schema_id`, `load_id`, `ledger`,
`replay`) with a ledger of its own under the same application ids, made at the first load with a declared schema. A load
with dead letters commits them first, then the rows; each commit is a compare-and-swap on its own ledger:

    crash before both        neither ledger moved: the next load does everything again
    crash between the two    the dead letters' ledger is ahead: the next load reads the range again; a record
                             that is a dead letter already stays one, whatever the schema has become since, and one that
                             is not yet becomes one if it doesn't pass now

So a crash neither loses nor doubles a record. A load without dead letters leaves this ledger behind the table's:
the offsets between hold none. Letters that decode later are appended to the rows by `replay`.
"""
