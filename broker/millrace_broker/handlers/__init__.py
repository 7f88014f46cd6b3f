"""One module for each API key; its docstring says which versions are served and how they differ."""
