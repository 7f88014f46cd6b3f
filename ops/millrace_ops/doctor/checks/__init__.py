"""What the facts mean: pure functions from facts to findings, one for each thing that is checked."""
