"""Benchmarks as programs, which no wheel has: each prints its figures beside yardsticks measured in the same run."""
