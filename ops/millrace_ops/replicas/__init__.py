"""Replicas of partitions: how they stand, where they should be, and how they are moved there."""
