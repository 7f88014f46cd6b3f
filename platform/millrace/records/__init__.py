"""Record formats: the batch of format v2, its records, compression, and decoding to Arrow."""
