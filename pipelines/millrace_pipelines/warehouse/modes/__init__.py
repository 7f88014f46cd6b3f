"""What else can be done with a table than appending to it: upsert, erasure, reload, backfill, continuous loads."""
