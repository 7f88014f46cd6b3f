"""JSON values: by the record kernel where they are plain, by Arrow's reader, or one by one; JSON Schema to columns."""
