"""Opening a log after a clean shutdown or a crash, checking all its bytes, and repairing what is damaged."""
