"""What both sides of a secured connection share: TLS, the mechanisms of SASL, and a client's settings."""
