"""The center in memory: its file, locks, worker counters, and how a chunk is applied."""
