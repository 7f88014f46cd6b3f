"""Loads: from the plan over the Spark tasks that read a topic to the commit of rows and offsets."""
