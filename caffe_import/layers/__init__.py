"""Definitions of layer types; one file per type, the activations in one. ``net.layer_registry`` finds the files."""
