"""Caffe's messages: caffe.proto and the module generated from it."""
