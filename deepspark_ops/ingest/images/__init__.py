"""One record to pixels: decoding, what the decoder says meanwhile, sums for the mean, and the way into a shard."""
