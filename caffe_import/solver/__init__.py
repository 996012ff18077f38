"""What a solver definition means: its fields, the nets that it names, learning rates."""
