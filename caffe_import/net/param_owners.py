"""The owner and the sharers of each parameter blob."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from caffe_import.net.layer_registry import BlobSpec, LayerRequest
from caffe_import.net.param_layout import ParamEntry, ParamLayout
from caffe_import.proto import caffe_pb2


@dataclass
class _Owner:
    """A blob that owns memory. A multiplier is None until the owner or a sharer gives it."""

    entry: ParamEntry
    lr_mult: float | None
    decay_mult: float | None


class ParamOwners:
    """Net::AppendParam: every blob gets an owner; named ones are shared from the second use on."""

    def __init__(self) -> None:
        """Start without blobs."""
        self._owners: list[_Owner] = []
        self._uses: dict[tuple[str, int], int] = {}
        self._by_name: dict[str, int] = {}
        self._offset = 0

    def add(self, request: LayerRequest, blobs: tuple[BlobSpec, ...]) -> None:
        """Add the blobs of the next layer.

        Raises:
            NetError: Too many param entries, a rate for a statistic, or a shared blob that does not fit.
        """
        message = request.message
        if len(message.param) > len(blobs):
            finding = f"has {len(message.param)} param for {len(blobs)} parameter blobs; give at most one per blob"
            raise request.refuse(finding)
        for index, blob in enumerate(blobs):
            spec = message.param[index] if index < len(message.param) else caffe_pb2.ParamSpec()
            # BatchNormLayer::LayerSetUp, "Cannot configure batch normalization statistics as layer parameters".
            if blob.kind == "statistic" and index < len(message.param) and spec.lr_mult != 0:
                default = "" if spec.HasField("lr_mult") else " (the default)"
                finding = f"param {index} has lr_mult={spec.lr_mult:g}{default}; statistics are not learned and Caffe "
                finding += "aborts; write lr_mult: 0"
                raise request.refuse(finding)
            owner = self._by_name.get(spec.name) if spec.name else None
            if owner is None:
                self._own(message.name, index, blob, spec)
            else:
                self._share(request, index, blob, spec, owner)

    def _own(self, layer: str, index: int, blob: BlobSpec, spec: caffe_pb2.ParamSpec) -> None:
        # BatchNorm gives its own statistics the rate 0 where the file says nothing (BatchNormLayer::LayerSetUp).
        unsaid = 0.0 if blob.kind == "statistic" else None
        entry = ParamEntry(layer, index, self._offset, blob.shape, kind=blob.kind)
        owner = _Owner(
            entry,
            spec.lr_mult if spec.HasField("lr_mult") else unsaid,
            spec.decay_mult if spec.HasField("decay_mult") else None,
        )
        self._uses[layer, index] = len(self._owners)
        if spec.name:
            self._by_name[spec.name] = len(self._owners)
        self._owners.append(owner)
        self._offset += entry.size

    def _share(
        self, request: LayerRequest, index: int, blob: BlobSpec, spec: caffe_pb2.ParamSpec, position: int
    ) -> None:
        owner = self._owners[position]
        permissive = spec.share_mode == caffe_pb2.ParamSpec.PERMISSIVE
        fits = prod(blob.shape) == owner.entry.size if permissive else blob.shape == owner.entry.shape
        if not fits:
            remedy = "the counts must agree" if permissive else "allow equal counts by share_mode: PERMISSIVE"
            finding = (
                f'param {index} has shape {blob.shape}; it shares "{spec.name}" of layer "{owner.entry.layer}", '
                f"which has shape {owner.entry.shape}: {remedy}"
            )
            raise request.refuse(finding)
        if spec.HasField("lr_mult"):
            owner.lr_mult = self._agreed(request, "lr_mult", spec.name, spec.lr_mult, owner.lr_mult)
        if spec.HasField("decay_mult"):
            owner.decay_mult = self._agreed(request, "decay_mult", spec.name, spec.decay_mult, owner.decay_mult)
        self._uses[request.message.name, index] = position

    def _agreed(
        self, request: LayerRequest, field_name: str, name: str, value: float, earlier_value: float | None
    ) -> float:
        if earlier_value is not None and value != earlier_value:
            values = f"{field_name}={value:g}, an earlier layer gives {earlier_value:g}"
            finding = f'shared param "{name}" has {values}; give it once'
            raise request.refuse(finding)
        return value

    def layout(self) -> ParamLayout:
        """Return the blobs of all layers added, in order."""
        entries = tuple(
            replace(
                owner.entry,
                lr_mult=1.0 if owner.lr_mult is None else owner.lr_mult,
                decay_mult=1.0 if owner.decay_mult is None else owner.decay_mult,
            )
            for owner in self._owners
        )
        return ParamLayout(entries, dict(self._uses))
