"""Passes of a net in a separate process, on arrays in shared memory."""
