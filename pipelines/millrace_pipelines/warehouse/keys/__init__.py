"""Tables with one row for each key, and the removal of rows by key or by offset."""
