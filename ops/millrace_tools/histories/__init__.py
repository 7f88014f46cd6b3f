"""Histories of sends and polls, and the anomalies that they show: `check.check` names each (docs/histories.md)."""
