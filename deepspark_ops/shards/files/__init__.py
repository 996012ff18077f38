"""The files of a dataset: shards, and the facts and pictures of samples beside shards."""
