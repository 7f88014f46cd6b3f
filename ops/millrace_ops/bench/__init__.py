"""Benchmarks as programs: each prints its figures beside yardsticks measured in the same run."""
