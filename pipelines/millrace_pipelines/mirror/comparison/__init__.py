"""How the audit of a mirror compares two logs: pure functions on batches, which know no cluster."""
