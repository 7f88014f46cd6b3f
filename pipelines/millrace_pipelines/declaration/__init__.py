"""What a `defs.yaml` declares: a cluster, and the tables that its topics become (docs/dagster.md).

attributes   the fields of the file, and what they may hold
cluster      which table each topic becomes, with the keys of its assets, and the state: the topics when last asked
"""
