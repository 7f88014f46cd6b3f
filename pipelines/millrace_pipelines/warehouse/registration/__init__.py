"""Entries of Delta tables in the catalogs of other engines, which find a table there by its name."""
