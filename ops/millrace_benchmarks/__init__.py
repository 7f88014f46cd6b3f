"""Benchmarks as programs, which no wheel has: each prints its figures beside yardsticks measured in the same run.

The servers beside which Millrace is measured are here too, and tests take them from here.
"""
