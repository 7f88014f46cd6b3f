"""What a `defs.yaml` declares: a cluster, and the tables that its topics become (docs/dagster.md).

attributes   the fields of the file, and what they may hold
state        the topics that the cluster had when it was last asked
cluster      which table each topic becomes, by the fields and those topics, and the keys of their assets
"""
