"""Compaction: of each key, the log keeps the newest record (docs/formats/compaction.md).

`choice` says which log is next and how far, `log_cleaner` runs the passes and remembers how far each log is clean,
`cleaner` is one pass over a log, `batches` decides what stays of one batch, and `offset_map` holds the last offset of
each key.
"""
