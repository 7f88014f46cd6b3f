"""The Delta Lake table itself: its log, its files, who is writing them, and commits that replace files."""
