"""Delta Lake tables: their log, what is obeyed of its protocol, and the commits to it."""
