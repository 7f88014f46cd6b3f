"""What the audit is made of: what the loads say, what the files have, and where the two differ."""
