"""Histories of sends and polls, and what they prove of a log: `check.check` names each anomaly (docs/histories.md)."""
