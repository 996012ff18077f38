"""Nets: layers with shapes, phases, wiring, the parameter vector's layout. No data, no TensorFlow."""
