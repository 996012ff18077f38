"""Layout of a training step over devices: device of each layer, recomputed layers, arithmetic."""
