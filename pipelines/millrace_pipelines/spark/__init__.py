"""Topics in Spark: sessions, the door to brokers, ranges of offsets as Arrow, and the data source `millrace`."""
