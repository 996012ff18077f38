"""Saliency maps for a request with a picture: the pixels that raise or lower a score of the served bundle.

The bundle's SavedModel has no gradients. So gradients come from the bundle's ``deploy.prototxt`` and
``weights.caffemodel``, which are loaded for the first request; occlusion asks the SavedModel.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from caffe_import.data.transform import TransformOptions, transform_batch
from caffe_import.errors import CaffeImportError
from caffe_import.files.prototxt import read_net
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.net.score_path import last_convolution, score_before_activation
from deepspark_ops.config.commands.serve import ServeConfig
from deepspark_ops.evaluate.saliency.maps import (
    Map,
    Squares,
    grad_cam,
    gradient_times_input,
    occluded,
    occlusion_map,
    overlay,
    squares_on,
)
from deepspark_ops.evaluate.trained_net import load_params
from deepspark_ops.export.deploy_net import build_deploy
from deepspark_ops.export.input_steps import options_from_words
from deepspark_ops.export.manifest import DEPLOY_NAME, WEIGHTS_NAME, BundleManifest, OutputBlob
from deepspark_ops.predict.samples import Parts
from deepspark_ops.serve.batching import Answers
from deepspark_ops.serve.refusal import RequestRefused
from deepspark_ops.serve.request import UNUSABLE
from deepspark_ops.shards.class_name import class_name
from deepspark_ops.shards.thumbnail import encoded, to_picture

if TYPE_CHECKING:
    from caffe_import.tf_graph.score_gradients import ScoreGradientFunction

Method = Literal["gradient", "grad_cam", "occlusion"]
_TASKS: Final = frozenset({"classification", "multi_label", "regression"})


@dataclass(frozen=True)
class Question:
    """A score of a picture, whose pixels a map judges.

    Attributes:
        parts: The picture as the bundle takes it: (C, H, W), BGR.
        output: Output of the bundle.
        position: Position of the score among the output's values: the class.
        score: The score, of the served output.
    """

    parts: Parts
    output: OutputBlob
    position: int
    score: float


@dataclass(frozen=True)
class _Gradients:
    compute: ScoreGradientFunction
    params: Vector


class BundleSaliency:
    """Saliency maps of a bundle. Safe to share between threads.

    Attributes:
        unavailable: Method -> reason why the bundle has no such map of its main output; empty for a method that works.
    """

    def __init__(self, manifest: BundleManifest, config: ServeConfig) -> None:
        """Read the bundle's net, which takes milliseconds; the weights wait for the first request."""
        self._manifest = manifest
        self._bundle = config.bundle
        self._across = config.occlusion_squares
        self._at_once = config.batch_size
        self._lock = threading.Lock()
        self._compiled: dict[str, _Gradients] = {}
        self._transform = TransformOptions()
        self._net: NetSpec | None = None
        reason, net_reason = _why_no_map(manifest), ""
        if not reason:
            try:
                self._transform = options_from_words(manifest.inputs[0].preprocessing, config.bundle)
                self._net, net_reason = self._read_net()
            except CaffeImportError as error:
                net_reason = f"{DEPLOY_NAME}: {error}"
        without_squares = "the option occlusion_squares is 0" if self._across == 0 else ""
        no_map = "" if self._net is None or self._map_of(manifest.results()[0]) else _NO_CONVOLUTION
        self.unavailable: Mapping[Method, str] = {
            "gradient": reason or net_reason,
            "grad_cam": reason or net_reason or no_map,
            "occlusion": reason or without_squares,
        }

    def _read_net(self) -> tuple[NetSpec | None, str]:
        missing = [name for name in (DEPLOY_NAME, WEIGHTS_NAME) if name not in self._manifest.files]
        if missing:
            return None, f"the bundle has no {missing[0]}, which gradients need; export with the format caffe"
        net = build_deploy(read_net(self._bundle / DEPLOY_NAME), self._manifest.unit_batch)
        return net, "" if len(net.inputs) == 1 else "the net has several inputs"

    def _map_of(self, output: OutputBlob) -> str | None:
        """Return the top of the last convolution before an output."""
        assert self._net is not None
        return last_convolution(
            self._net, next(iter(self._net.inputs)), score_before_activation(self._net, output.blob)
        )

    def question(self, parts: Parts, answers: Answers, output_name: str | None, position: int | None) -> Question:
        """Return the score of a picture that a request asks for; by default the largest value of the main output.

        Raises:
            RequestRefused: 422: no such output, or no such value.
        """
        outputs = {output.name: output for output in self._manifest.results()}
        output = outputs.get(output_name or next(iter(outputs)))
        if output is None or output.task not in _TASKS:
            allowed = ", ".join(output.name for output in outputs.values() if output.task in _TASKS)
            finding = f"output={output_name}: is {'no output' if output is None else f'a {output.task}'}"
            raise RequestRefused(UNUSABLE, f"{finding}; expected an output with a score of a sample: {allowed}")
        values = np.asarray(answers[output.name][0]).reshape(-1)
        if position is not None and position >= len(values):
            raise RequestRefused(UNUSABLE, f"class={position}: expected a number from 0 to {len(values) - 1}")
        chosen = int(values.argmax()) if position is None else position
        return Question(parts, output, chosen, float(values[chosen]))

    def check(self, method: Method, output: OutputBlob) -> None:
        """Check that a map of this output exists.

        Raises:
            RequestRefused: 422: the bundle has no such map; the text has the reason.
        """
        is_main = output.name == self._manifest.results()[0].name
        reason = self.unavailable[method]
        if method == "grad_cam" and not is_main and self._net is not None:
            reason = "" if self._map_of(output) else _NO_CONVOLUTION
        if reason:
            raise RequestRefused(UNUSABLE, f"method={method}: {reason}")

    def copies(self, question: Question) -> Iterator[Sequence[Parts]]:
        """Yield batches of copies of the picture, each with a square of the mean colour."""
        for batch in occluded(question.parts[0], self._squares(question), at_once=self._at_once):
            yield [(copy,) for copy in batch]

    def occlusion(self, question: Question, answers: Sequence[Answers]) -> dict[str, Any]:
        """Return the answer to a request from the answers of each batch of ``copies``."""
        scores = [float(row.reshape(-1)[question.position]) for batch in answers for row in batch[question.output.name]]
        picture = question.parts[0]
        falls = occlusion_map(question.score, scores, self._squares(question), (picture.shape[1], picture.shape[2]))
        top, left, height, width = self._window(question.parts)
        return self._answer("occlusion", question, falls[top : top + height, left : left + width])

    def gradients(self, method: Method, question: Question) -> dict[str, Any]:
        """Return the answer to a request for ``gradient`` or ``grad_cam``."""
        gradients = self._gradients(question.output)
        picture = question.parts[0][None]
        fed = transform_batch(picture, self._transform, phase="TEST")
        n_rows = self._manifest.unit_batch
        feeds = {name: np.repeat(fed, n_rows, axis=0) for name in self._net.inputs} if self._net else {}
        computed = gradients.compute(gradients.params, feeds, np.full(n_rows, question.position))
        if method == "gradient":
            return self._answer(method, question, gradient_times_input(computed.source[0], fed[0]))
        assert computed.feature_maps is not None and computed.feature_gradients is not None  # noqa: PT018 - both or none
        return self._answer(method, question, grad_cam(computed.feature_maps[0], computed.feature_gradients[0]))

    def _gradients(self, output: OutputBlob) -> _Gradients:
        from caffe_import.tf_graph.score_gradients import ScoreGradientFunction  # TensorFlow

        with self._lock:
            assert self._net is not None
            if output.name not in self._compiled:
                loaded = next(iter(self._compiled.values()), None)
                params = load_params(self._net, self._bundle / WEIGHTS_NAME) if loaded is None else loaded.params
                source = next(iter(self._net.inputs))
                compute = ScoreGradientFunction(self._net, source=source, result=output.blob)
                self._compiled[output.name] = _Gradients(compute, params)
            return self._compiled[output.name]

    def _window(self, parts: Parts) -> tuple[int, int, int, int]:
        """Return top, left, height and width of the pixels that the net sees: of a crop the centre."""
        height, width = parts[0].shape[1:]
        crop = self._transform.crop_size
        return ((height - crop) // 2, (width - crop) // 2, crop, crop) if crop else (0, 0, height, width)

    def _squares(self, question: Question) -> Squares:
        return squares_on(*self._window(question.parts), across=self._across)

    def _answer(self, method: Method, question: Question, saliency: Map) -> dict[str, Any]:
        top, left, height, width = self._window(question.parts)
        picture = to_picture(question.parts[0][:, top : top + height, left : left + width])
        assert picture is not None  # the bundle takes pictures of one or three channels
        if not np.isfinite(saliency).all():
            raise RequestRefused(500, "the net gave numbers that are not finite; the picture is out of range")
        is_main = question.output.name == self._manifest.results()[0].name
        names = self._manifest.output.labels if is_main else ()  # of further outputs nobody knows whose the names are
        return {
            "method": method,
            "output": question.output.name,
            "class": question.position,
            **({"class_name": class_name(names, question.position)} if question.output.n_classes else {}),
            "score": question.score,
            "map": [[float(f"{value:.5g}") for value in row] for row in saliency],
            "picture": base64.b64encode(encoded(overlay(picture, saliency)).content).decode(),
        }


_NO_CONVOLUTION: Final = "the net has no convolution with a map of several pixels before this score"


def _why_no_map(manifest: BundleManifest) -> str:
    """Return why a bundle has no saliency maps at all; empty if it may have maps."""
    if len(manifest.inputs) != 1 or not manifest.inputs[0].takes_images:
        return "the bundle does not take a single picture"
    if manifest.inputs[0].shape[-1] not in (1, 3):
        return f"the bundle takes pictures of {manifest.inputs[0].shape[-1]} channels, a map is drawn over 1 or 3"
    main = manifest.results()[0]
    if main.task not in _TASKS or prod(main.shape[1:]) < 1:
        return f"the main output is a {main.task}, which has no score of a sample"
    return ""
