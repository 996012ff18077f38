"""pycaffe's ``caffe.proto``: ``from deepspark_ops.api.pycaffe.proto import caffe_pb2``."""

from caffe_import.proto import caffe_pb2

__all__ = ["caffe_pb2"]
