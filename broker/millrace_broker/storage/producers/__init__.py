"""What a log knows of its producers: sequences, epochs, open transactions, and snapshots of them (KIP-98)."""
