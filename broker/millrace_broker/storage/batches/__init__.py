"""Record batches: the rules that produced ones must keep, their places in the log, walks over those in a file."""
