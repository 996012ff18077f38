"""The server of ``deepspark serve``, in front of a model of a few lines that starts within a second."""

import sys
from pathlib import Path

from deepspark_ops.serve.app import make_app
from deepspark_ops.serve.guard import LOOPBACK_NAMES, Limits
from deepspark_ops.serve.service import Service
from deepspark_ops.serve.start import address, open_port, run_server
from tests.unit.deepspark_ops.serve.fake_model import FakeModel, serve_config

if __name__ == "__main__":
    model = FakeModel(Path(sys.argv[1]))
    config = serve_config(model)
    body_timeout_s, header_timeout_s = map(float, sys.argv[2:])
    limits = Limits(config.max_upload, config.queue_size, hosts=LOOPBACK_NAMES, upload_timeout_s=body_timeout_s)
    with open_port("127.0.0.1", 0) as opened:
        sys.stdout.write(f"{address(opened)}\n")
        sys.stdout.flush()
        run_server(make_app(Service.of(model, config), config, limits), opened, header_timeout_s=header_timeout_s)
