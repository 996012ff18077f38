"""Finding blocks, names and values in a text, broken or not."""

from __future__ import annotations

from caffe_import.files.prototxt_scan import layer_of, line_and_column, offset_of, scan_prototxt

TEXT = """name: "net"  # layer { name: "no" }
layer {
  name: "a"
  convolution_param <
    weight_filler { type: "x{y" }
  >
}
layer { top: ["p", "q"] name: "b" }
"""


def test_blocks_have_names_labels_and_positions() -> None:
    blocks = scan_prototxt(TEXT).blocks
    assert [(b.name, b.label, b.position) for b in blocks] == [
        ("", "net", 1),
        ("layer", "a", 1),
        ("convolution_param", "", 1),
        ("weight_filler", "", 1),
        ("layer", "b", 2),
    ]
    assert all(b.closed for b in blocks)


def test_place_knows_role_field_and_layer() -> None:
    scan = scan_prototxt(TEXT)
    token = scan.at(TEXT.index('"x{y"') + 2)
    assert token is not None
    assert (token.role, token.field_name, token.text) == ("value", "type", '"x{y"')
    layer, path = layer_of(token.block)
    assert layer is not None
    assert (layer.label, path) == ("a", ("convolution_param", "weight_filler"))


def test_every_item_of_a_list_is_a_value_of_its_field() -> None:
    tokens = scan_prototxt(TEXT).tokens
    assert [p.text for p in tokens if p.field_name == "top" and p.role == "value"] == ['"p"', '"q"']


def test_unclosed_is_the_innermost_open_block() -> None:
    unclosed = scan_prototxt("layer { a { } b { c: 1").unclosed()
    assert unclosed is not None
    assert unclosed.name == "b"
    assert scan_prototxt(TEXT).unclosed() is None


def test_v0_layer_has_the_name_of_its_inner_layer() -> None:
    scan = scan_prototxt('layers { layer { name: "old" type: "conv" } }')
    layer, path = layer_of(scan.blocks[-1])
    assert layer is not None
    assert (layer.name, layer.label, path) == ("layers", "old", ())


def test_offsets_and_places_are_inverse() -> None:
    for offset in (0, 5, TEXT.index("weight_filler"), len(TEXT) - 1):
        assert offset_of(TEXT, *line_and_column(TEXT, offset)) == offset


def test_place_past_the_end_of_a_line_is_its_end() -> None:
    assert offset_of("ab\ncd", 1, 99) == 2
    assert offset_of("ab\ncd", 9, 1) == 3


def test_first_of_two_names_is_the_label() -> None:
    assert scan_prototxt('layer { name: "a" name: "b" }').blocks[1].label == "a"
