"""Loads, reloads and replays: the Spark tasks that read a topic, their verification, the commit of rows and offsets."""
