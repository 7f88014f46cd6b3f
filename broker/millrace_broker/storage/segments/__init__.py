"""One segment of a log: the file of its batches, its three indexes, and the swap that puts a compacted one in place."""
