"""The whole platform as one process tree: its services, their supervisor, and Dagster's API."""
