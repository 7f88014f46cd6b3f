"""Record formats: batches, the message sets and messages before them, conversion, compression, decoding to Arrow."""
