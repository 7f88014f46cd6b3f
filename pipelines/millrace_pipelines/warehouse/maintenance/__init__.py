"""What keeps tables in good order, each safe beside a running load: compaction, checkpoints, vacuum."""
