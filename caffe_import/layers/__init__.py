"""What each layer type means. One file per type, registered with ``layer_registry.layer_type``."""
