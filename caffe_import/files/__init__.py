"""Caffe's files, read and written: prototxt, caffemodel, solverstate, mean, Datum; old forms are upgraded."""
