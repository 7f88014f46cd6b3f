"""The data folders of a broker: whose they are, what their checkpoints say, and which logs are in them."""
