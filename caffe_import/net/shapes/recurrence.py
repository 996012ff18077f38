"""Bottoms, tops and options of LSTM and RNN, the layers over the time axis of the first bottom.

Source: BVLC Caffe, src/caffe/layers/recurrent_layer.cpp, RecurrentLayer::LayerSetUp.

Source: BVLC Caffe, src/caffe/layers/recurrent_layer.cpp, RecurrentLayer::LayerSetUp.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from caffe_import.net.layer_registry import LayerRequest, Shape
from caffe_import.net.shapes.axes import shape_text


@dataclass(frozen=True)
class RecurrentOptions:
    """Resolved options.

    Attributes:
        n_steps: T, first axis of the bottom x (T, N, ...).
        n_streams: N, sequences side by side.
        n_inputs: Values of x per step and stream.
        n_static: Values per stream of the bottom that every step sees; 0: there is none.
        n_hidden: num_output.
        is_exposed: The first hidden state comes in as bottoms and the last goes out as tops, each (1, N, n_hidden);
            otherwise it is carried from one forward pass to the next, starting with zeros.
    """

    n_steps: int
    n_streams: int
    n_inputs: int
    n_static: int
    n_hidden: int
    is_exposed: bool

    @property
    def hidden_shape(self) -> Shape:
        """Shape of one state, (1, N, n_hidden)."""
        return (1, self.n_streams, self.n_hidden)

    @property
    def top_shape(self) -> Shape:
        """Shape of the first top, (T, N, n_hidden)."""
        return (self.n_steps, self.n_streams, self.n_hidden)

    @property
    def n_inputs_before_state(self) -> int:
        """Number of bottoms before the given states: x, cont, and a static bottom if given."""
        return 3 if self.n_static else 2


def resolve_recurrence(request: LayerRequest, n_states: int) -> RecurrentOptions:
    """Return the options of a layer with ``n_states`` hidden states (LSTM: h and c; RNN: h).

    Raises:
        NetError: Bottoms or tops in wrong number or shape, or no num_output.
    """
    param = request.message.recurrent_param
    if param.num_output < 1:
        finding = f"recurrent_param.num_output={param.num_output}: must be at least 1"
        raise request.refuse(finding)
    n_given = n_states if param.expose_hidden else 0
    n_bottoms = len(request.bottom_shapes)
    if n_bottoms not in (2 + n_given, 3 + n_given) or len(request.message.top) != 1 + n_given:
        form = "expose_hidden: true" if param.expose_hidden else "expose_hidden: false"
        finding = (
            f"has {n_bottoms} bottoms and {len(request.message.top)} tops; with {form} allowed: "
            f"{2 + n_given} or {3 + n_given} (a static input) bottoms, {1 + n_given} tops"
        )
        raise request.refuse(finding)
    sequence, cont = request.bottom_shapes[:2]
    if len(sequence) < 2 or cont != sequence[:2]:
        finding = (
            f"bottoms x {shape_text(sequence)} and cont {shape_text(cont)}: expected (T, N, ...) and (T, N), time first"
        )
        raise request.refuse(finding)
    static = request.bottom_shapes[2] if n_bottoms == 3 + n_given else None
    if static is not None and static[:1] != sequence[1:2]:
        finding = f"the static bottom has shape {shape_text(static)}; expected (N, ...) with N={sequence[1]}"
        raise request.refuse(finding)
    options = RecurrentOptions(
        n_steps=sequence[0],
        n_streams=sequence[1],
        n_inputs=prod(sequence[2:]),
        n_static=0 if static is None else prod(static[1:]),
        n_hidden=param.num_output,
        is_exposed=param.expose_hidden,
    )
    for state_shape in request.bottom_shapes[n_bottoms - n_given :]:
        if state_shape != options.hidden_shape:
            finding = (
                f"an initial state has shape {shape_text(state_shape)}; expected {shape_text(options.hidden_shape)}"
            )
            raise request.refuse(finding)
    return options
