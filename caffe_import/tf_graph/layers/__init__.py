"""How TensorFlow computes each layer type; one file per type, mirroring ``caffe_import.layers``."""
