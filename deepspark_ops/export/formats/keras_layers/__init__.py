"""A net in Keras's own layers and operations: one file for each family of layer types."""
