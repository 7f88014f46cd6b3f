"""The log of one partition: appending, reading, rolling, syncing and deleting its segments."""
