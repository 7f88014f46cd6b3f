"""Apache Iceberg tables: found in a catalog, read, and committed to by snapshots that carry the ledger."""
