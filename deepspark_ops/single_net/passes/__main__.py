"""Process for passes: ``python -m deepspark_ops.single_net.passes SOCKET``; ends with its caller."""

from __future__ import annotations

import socket
import sys
from typing import Any, Literal

from caffe_import.errors import CaffeImportError
from caffe_import.extras import require
from caffe_import.net.net_spec import build_net_spec
from caffe_import.proto import caffe_pb2
from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.processes.stage_process import keep_imports
from deepspark_ops.single_net.passes.messages import Message, receive, send
from deepspark_ops.single_net.passes.shared_arrays import SharedArrays, blob_shapes, param_shapes


class _Nets:
    """The caller's open nets."""

    def __init__(self) -> None:
        self._ranges: dict[int, Any] = {}

    def answer(self, request: Message) -> dict[str, Any]:
        """Do what a request asks for."""
        head = request.head
        match head["do"]:
            case "start":
                return {"device": _set_up(head["devices"])}
            case "open":
                self._open(head, request)
            case "close":
                self._ranges.pop(head["net"], None)
            case "forward":
                return {"shapes": self._ranges[head["net"]].forward(head["start"], head["end"], head["seed"])}
            case "backward":
                self._ranges[head["net"]].backward(head["start"], head["end"])
        return {}

    def _open(self, head: dict[str, Any], request: Message) -> None:
        from deepspark_ops.single_net.passes.tf_layer_range import LayerRange

        net = build_net_spec(caffe_pb2.NetParameter.FromString(request.content), phase=head["phase"])
        params_handle, blobs_handle = request.handles
        params = SharedArrays(param_shapes(net.params.n_params), params_handle)
        blobs = SharedArrays(blob_shapes(net.blob_shapes), blobs_handle)
        self._ranges[head["net"]] = LayerRange(net, params, blobs)


def _set_up(devices: Literal["auto", "cpu", "gpu"]) -> str:
    require("tensorflow", part="ds.Net")
    from caffe_import.tf_graph.devices import kind_of_option, set_up_devices

    return set_up_devices(kind_of_option(devices), 1, n_threads=host_cores()).description


def main() -> int:
    """Answer requests until the caller is gone."""
    keep_imports()
    channel = socket.socket(fileno=int(sys.argv[1]))
    nets = _Nets()
    while (request := receive(channel)) is not None:
        try:
            answer = nets.answer(request)
        except (CaffeImportError, ModuleNotFoundError) as error:
            answer = {"mistake": str(error)}
        except Exception as error:  # noqa: BLE001 - an error of TensorFlow is raised in the caller, and this process continues
            answer = {"failure": f"{type(error).__name__}: {error}"}
        send(channel, {"id": request.head["id"], **answer})
    return 0


if __name__ == "__main__":
    sys.exit(main())
