"""A bundle of a Caffe model that was trained elsewhere: no run, no training."""
