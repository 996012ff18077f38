"""The fuzzed readers, by origin of the files; ``table`` has all."""
