"""Caffe-readable shards and their manifest: write, read, verify."""
