"""Topics as Delta tables: rows and offsets in one commit, each offset exactly once (spec H2)."""
