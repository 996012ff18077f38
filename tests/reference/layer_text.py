"""Layers as text of a prototxt."""

from __future__ import annotations


def layer_text(kind: str, name: str, *bottoms: str, top: str = "", options: str = "") -> str:
    """Return a layer; its top has the layer's name if ``top`` is empty."""
    reads = " ".join(f'bottom: "{bottom}"' for bottom in bottoms)
    return f'layer {{ name: "{name}" type: "{kind}" {reads} top: "{top or name}" {options} }}\n'


def input_layer(name: str, *sample_shape: int) -> str:
    """Return an Input layer for one sample."""
    dims = " ".join(f"dim: {extent}" for extent in (1, *sample_shape))
    return layer_text("Input", name, options=f"input_param {{ shape {{ {dims} }} }}")


def inner_product(name: str, bottom: str = "x", n: int = 4, *, top: str = "", more: str = "", options: str = "") -> str:
    """Return an InnerProduct layer of n outputs; ``more`` are further fields of its own options."""
    own_options = f"inner_product_param {{ num_output: {n} {more} }}"
    return layer_text("InnerProduct", name, bottom, top=top, options=f"{own_options} {options}")


def loss_layer(kind: str, *bottoms: str, name: str = "loss", options: str = "") -> str:
    """Return a layer of a loss whose top has the layer's name."""
    return layer_text(kind, name, *bottoms, options=options)
