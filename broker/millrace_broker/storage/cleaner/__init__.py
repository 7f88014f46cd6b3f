"""Compaction: of each key, the log keeps the newest record (docs/formats/compaction.md).

`choice` says which log is next and how far, and which is left alone as it fails, `log_cleaner` runs the passes and
remembers how far each log is clean, `cleaner` is one pass over a log, and `batches` decides what stays of one batch, by
the last offset of each key.
"""
