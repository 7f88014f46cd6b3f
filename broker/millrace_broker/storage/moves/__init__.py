"""Moving a log from one data folder to another while it is served (KIP-113)."""
