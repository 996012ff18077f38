"""How a training step is laid out over devices: which layer where, what is computed again, in which arithmetic."""
