"""Sources of Caffe's data layers, one file per kind of source; samples as stored, before any transform."""

from caffe_import.data.layer_source import open_source, sample_shapes_of
from caffe_import.data.sample_source import SampleSource, read_wrapped

__all__ = ["SampleSource", "open_source", "read_wrapped", "sample_shapes_of"]
