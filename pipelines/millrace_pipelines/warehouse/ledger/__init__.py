"""Which offsets a table holds, which it skipped, and which a load or a reload takes next."""
