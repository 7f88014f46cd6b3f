"""Importing other systems' logs."""
