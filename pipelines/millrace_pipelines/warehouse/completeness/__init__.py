"""The completeness audit: what the loads claim, what the files have, and where the two differ."""
