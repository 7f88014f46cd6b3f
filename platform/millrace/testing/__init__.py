"""Brokers for tests: the pytest plugin (docs/testing.md), and brokers of Millrace and Apache Kafka as processes."""
