"""One file per format of raw data; ``registry`` asks every format; ``format`` is the shared interface."""
