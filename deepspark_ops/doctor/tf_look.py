"""Facts of TensorFlow on this host, as one line of JSON; a separate process, because a wrong kernel may kill it.

Started as ``python -m deepspark_ops.doctor.tf_look``.
"""

from __future__ import annotations

import json
import sys

from caffe_import.tensorflow_start import start_lines_dropped
from deepspark_ops.devices.host_cores import host_cores


def main() -> None:
    """Multiply two matrices, and print TensorFlow's version, its device and the check of the product as JSON."""
    with start_lines_dropped():
        from caffe_import.tf_graph import tensorflow as tf
        from caffe_import.tf_graph.devices import n_gpus_seen, set_up_devices, why_no_gpu

        n_gpus = n_gpus_seen()
        why = "" if n_gpus else why_no_gpu()
        ready = set_up_devices("gpu" if n_gpus else "cpu", 1, n_threads=host_cores())
        ones = tf.ones((64, 64))
        total = float(tf.reduce_sum(tf.function(tf.matmul)(ones, ones)))
    facts = {
        "version": tf.__version__,
        "device": ready.description,
        "why_no_gpu": why,
        "is_right": total == 64.0**3,
    }
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
