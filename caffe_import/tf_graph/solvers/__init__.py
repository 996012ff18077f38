"""Caffe's update rules on the whole parameter vector, one file per solver type."""
