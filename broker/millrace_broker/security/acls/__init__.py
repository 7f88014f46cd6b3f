"""Decides what clients may do: access control lists as Apache Kafka's AclAuthorizer reads them, and the audit log."""
