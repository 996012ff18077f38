"""How TensorFlow computes each layer type; one file a type, mirroring ``caffe_import.layers``."""
