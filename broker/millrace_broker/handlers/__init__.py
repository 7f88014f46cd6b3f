"""One module per API key, headed by the versions it serves and how they differ."""
