"""The door to tables: what every format does, and what all of them share."""
