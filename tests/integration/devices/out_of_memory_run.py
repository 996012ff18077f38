"""A worker whose training step finds no memory: ``python -m tests.integration.devices.out_of_memory_run FOLDER``.

TensorFlow's allocator reads the limit TF_MKL_ALLOC_MAX_BYTES when TensorFlow starts. Prints how the worker ended.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from caffe_import.files.datum import encode_datum
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.shards.files.lmdb_shard import sample_key, write_lmdb_shard
from tests.integration.train.in_process import run_in_process

NET = """
layer { name: "data" type: "Data" top: "data" top: "label"
  data_param { source: "lmdb" batch_size: 4096 backend: LMDB } }
layer { name: "wide/ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 8192 } }
layer { name: "wide/tanh" type: "TanH" bottom: "ip" top: "tanh" }
layer { name: "drop" type: "Dropout" bottom: "tanh" top: "drop" }
layer { name: "ip2" type: "InnerProduct" bottom: "drop" top: "ip2" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    image = np.zeros((1, 8, 8), np.uint8)
    write_lmdb_shard(folder / "lmdb", [(sample_key(k, "x"), encode_datum(image, k % 2)) for k in range(64)])
    (folder / "net.prototxt").write_text(NET)
    solver = folder / "solver.prototxt"
    solver.write_text('net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 2 solver_mode: CPU')
    config = TrainConfig(solver=solver, run_dir=folder / "run", n_workers=1, threads_per_worker=1)
    outcomes = run_in_process(config).outcomes
    sys.stdout.write(json.dumps([asdict(outcome) for outcome in outcomes]) + "\n")
