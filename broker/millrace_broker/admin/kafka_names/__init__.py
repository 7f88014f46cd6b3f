"""Gives metrics the names that they have in Apache Kafka, behind Prometheus' JMX exporter (docs/metrics.md)."""
