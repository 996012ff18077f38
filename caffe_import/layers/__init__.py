"""Definitions of layer types; a file per type, the activations together. ``net.layer_registry`` finds the files."""
