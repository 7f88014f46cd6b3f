"""Schema registries: what they answer, a server over HTTP, a directory."""
