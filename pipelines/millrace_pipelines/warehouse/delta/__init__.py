"""Delta Lake tables: their log, their files, the leases of those who write, and commits that replace files."""
