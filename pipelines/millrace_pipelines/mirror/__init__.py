"""The mirror: topics of a source cluster in a target cluster, each record exactly once."""
