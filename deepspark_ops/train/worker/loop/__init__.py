"""The steps of a worker: exchange, tests of the center, progress; without TensorFlow."""
