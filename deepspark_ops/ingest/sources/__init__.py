"""One file per format of raw data, and ``registry``, which asks them all; ``format`` is the interface they share."""
