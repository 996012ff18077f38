"""Passes of a net in a process of their own, on arrays that the process shares with its caller."""
