"""Jobs that mend tables: reload, backfill, replay of dead letters, erasure; and reloads by the day."""
