"""Tables of topics: found, opened with the columns of their schema, brought to a changed one, and queried."""
