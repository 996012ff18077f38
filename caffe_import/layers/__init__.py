"""What each layer type means; one file per type, the activations in one. ``net.layer_registry`` finds them."""
