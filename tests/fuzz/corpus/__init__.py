"""The readers that are fuzzed, by where their files come from; ``table`` has all."""
