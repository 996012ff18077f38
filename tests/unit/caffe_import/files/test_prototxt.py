"""Reading prototxts: what is read, and the exact words and places of every kind of mistake."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caffe_import.errors import CaffeImportError, NetError, PrototxtError
from caffe_import.files import prototxt
from caffe_import.proto import caffe_pb2
from tests.paths import FIXTURES
from tests.special_files import SPECIAL_KINDS, make_special

BAD = sorted((FIXTURES / "prototxt" / "bad").glob("*.prototxt"))
GOOD = sorted((FIXTURES / "caffe" / "nets").glob("*.prototxt")) + sorted((FIXTURES / "nets").glob("*.prototxt"))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_file_gives_exact_message(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with pytest.raises(CaffeImportError) as caught:
        prototxt.read_net(Path(path.name))
    assert str(caught.value) == path.with_suffix(".expected").read_text().removesuffix("\n")


def test_table_of_bad_files_is_there() -> None:
    assert len(BAD) >= 30


def test_unknown_field_carries_place_and_allowed_names() -> None:
    with pytest.raises(PrototxtError) as caught:
        prototxt.parse_net('layer {\n  name: "c"\n  convolution_param { kernal_size: 5 }\n}', path="n.prototxt")
    error = caught.value
    assert (error.path, error.line, error.column) == ("n.prototxt", 3, 23)
    assert error.allowed == tuple(sorted(caffe_pb2.ConvolutionParameter.DESCRIPTOR.fields_by_name))


@pytest.mark.parametrize(
    ("text", "position", "finding"),
    [
        (
            'layer { name: "c" quantization_param { bw_layer_in: 8 bw_layer_out: 8 bw_params: 8 fl_params: 7 } }',
            "1:19",
            'quantization_param in layer "c" belongs to Intel\'s fork',
        ),
        (
            'layer { name: "d" transform_param {\n random_resize_param { min_size: 256 max_size: 480 '
            "resize_param { interp_mode: CUBIC prob: 1 height_scale: 2 width_scale: 3 } } } }",
            "2:2",
            'random_resize_param in transform_param of layer "d" belongs to Intel\'s fork',
        ),
        (
            'layer { name: "d" transform_param { resize_param { prob: 1 resize_mode: WARP height: 300 width: 300 '
            "interp_mode: LINEAR pad_mode: CONSTANT height_scale: 1 } } }",
            "1:37",
            'resize_param in transform_param of layer "d" belongs to the fork for SSD',
        ),
        ("bn_stats_batch_size: 32", "1:1", "bn_stats_batch_size in the net belongs to Intel's fork"),
        ("default_forward_type: FLOAT16", "1:1", "default_forward_type in the net belongs to NVIDIA's fork (NVCaffe)"),
    ],
)  # fmt: skip
def test_field_of_a_fork_in_a_file_is_called_that(tmp_path: Path, text: str, position: str, finding: str) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(text)
    with pytest.raises(PrototxtError) as caught:
        prototxt.read_net(path)
    assert str(caught.value).startswith(f"{path}:{position}: {finding}, not to Caffe 1.0; not supported here\n")


OWN_LAYER = "\n  add it as a layer of your own: docs/guides/own_layer.md"


@pytest.mark.parametrize(
    ("text", "finding", "end"),
    [
        (
            'layers { name: "r"\n type: ROI_POOLING }',
            ':2:8: type of layer "r" is ROI_POOLING, of the forks for Fast and Faster R-CNN, not of Caffe 1.0;'
            " not supported here\n",
            OWN_LAYER,
        ),
        (
            'layer { name: "q" type: "Quartet"\n quartet_loss_param { margin: 1 } }',
            ':2:2: unknown field "quartet_loss_param" in layer "q"\n',
            OWN_LAYER,
        ),
        (
            'layer { name: "c"\n convolutoin_param { num_output: 1 } }',
            ':2:2: unknown field "convolutoin_param" in layer "c"\n',
            '\n  did you mean "convolution_param"?',
        ),
        (
            'layer { name: "r" relu_param { negative_slope: 0,1 } }',
            ':1:50: unknown field "1" in relu_param of layer "r"\n',
            "\n  a number has a decimal point, as 0.01, and no comma",
        ),
        ("compile_net_state { }", ":1:1: compile_net_state in the net belongs to", "without it: remove it"),
    ],
    ids=["V1 type", "strange layer", "misspelled", "decimal comma", "net"],
)
def test_fields_of_a_fork_are_refused_with_a_remedy(tmp_path: Path, text: str, finding: str, end: str) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(text)
    with pytest.raises(PrototxtError) as caught:
        prototxt.read_net(path)
    assert str(caught.value).startswith(f"{path}{finding}")
    assert str(caught.value).endswith(end)


@pytest.mark.parametrize("text", ["flow { user: root\n password: x }", "resize_param { a: 1 b: 2 c: 3 }\nnmae: x"])
def test_words_of_a_file_that_shares_a_name_with_a_fork_are_not_shown(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.conf").write_text(text)
    with pytest.raises(PrototxtError, match="its words are not shown"):
        prototxt.read_net(tmp_path / "other.conf")


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_format_message_gives_the_same_net_again(path: Path) -> None:
    net = prototxt.read_net(path)
    assert len(net.layer) > 0
    assert prototxt.parse_net(prototxt.format_message(net)) == net


def test_binary_net_is_read_like_text(tmp_path: Path) -> None:
    net = prototxt.parse_net('name: "b" layer { name: "r" type: "ReLU" bottom: "x" top: "y" }')
    (tmp_path / "net.binaryproto").write_bytes(net.SerializeToString())
    assert prototxt.read_net(tmp_path / "net.binaryproto") == net


def test_byte_order_mark_and_comments_in_other_encodings_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "bom.prototxt").write_bytes(b'\xef\xbb\xbfname: "a"')
    (tmp_path / "latin.prototxt").write_bytes('name: "a"  # Größe\n'.encode("latin-1"))
    assert prototxt.read_net(tmp_path / "bom.prototxt").name == "a"
    assert prototxt.read_net(tmp_path / "latin.prototxt").name == "a"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty; a net's prototxt was expected"),
        (b" \n\t", "is empty"),
        ('name: "a"'.encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
        ('layer { name: "Größe" }'.encode("latin-1"), ":1:15: bytes that are not UTF-8 text"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "is neither text nor a binary NetParameter"),
        (b"\x08\x01\x10\x02", "is not a net: read as a binary NetParameter it has 2 fields"),
    ],
    ids=["empty", "blank", "utf-16", "latin-1 text", "image", "other message"],
)
def test_bytes_that_are_no_net_are_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.prototxt"
    path.write_bytes(content)
    with pytest.raises(PrototxtError) as caught:
        prototxt.read_net(path)
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(PrototxtError, match=r"absent\.prototxt: no such file; give the net's prototxt"):
        prototxt.read_net(tmp_path / "absent.prototxt")
    with pytest.raises(PrototxtError, match="is a folder; give the solver's prototxt file"):
        prototxt.read_solver(tmp_path)
    with pytest.raises(PrototxtError, match="cannot be read: "):
        prototxt.read_net(Path("a\0b"))
    (tmp_path / "file").write_text("")
    with pytest.raises(PrototxtError, match="cannot be read: Not a directory"):
        prototxt.read_net(tmp_path / "file" / "net.prototxt")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", SPECIAL_KINDS)
def test_a_special_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    with (
        make_special(kind, tmp_path / "net.prototxt") as path,
        pytest.raises(PrototxtError, match="is a folder" if kind == "folder" else SPECIAL_KINDS[kind]),
    ):
        prototxt.read_net(path)


def test_giant_files_are_refused_before_parsing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "big.prototxt"
    path.write_text("#" * 100)
    monkeypatch.setattr(prototxt, "MAX_TEXT_BYTES", 99)
    with pytest.raises(PrototxtError, match="100 bytes of text; a net of more than 99 bytes is not read"):
        prototxt.read_net(path)
    path.write_bytes(bytes(100))
    monkeypatch.setattr(prototxt, "MAX_BINARY_BYTES", 99)
    with pytest.raises(PrototxtError, match="cannot be read: more than 99 bytes"):
        prototxt.read_net(path)


@pytest.mark.parametrize(
    "text", ["layer {" * 20_000, "{" * 20_000, "net_param {" * 10_000, "'" * 20_000, "x" * 1_000_000, "1 " * 10_000]
)
def test_nesting_and_length_are_bounded(text: str) -> None:
    with pytest.raises(PrototxtError) as caught:
        prototxt.parse_net(text)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("text", ['name: "\\xff"', 'name: "\ud800"', 'name: "\\ud800"'])
def test_text_that_is_no_unicode_is_refused_printably(text: str) -> None:
    with pytest.raises(PrototxtError, match="a text whose backslash escapes do not give UTF-8") as caught:
        prototxt.parse_net(text)
    assert str(caught.value).encode().startswith(b"<text>:1:")


@pytest.mark.parametrize("escape", ["\\l", "\\400", "\\u12", "\\U00110000", "\\xz", "\\8", "\\N{DASH}"])
def test_unknown_escape_is_refused_at_its_place(escape: str) -> None:
    with pytest.raises(PrototxtError) as caught:
        prototxt.parse_net(f'name: "a\\n{escape}"')
    assert f'<text>:1:11: unknown escape "{escape[:2]}" in quotes' in str(caught.value)


@pytest.mark.parametrize("escape", [f"\\{letter}" for letter in "abfnrtv"])
def test_control_character_in_a_path_is_refused_at_its_place(escape: str) -> None:
    with pytest.raises(PrototxtError) as caught:
        prototxt.parse_net(f'layer {{ data_param {{ source: "data{escape}db" }} }}')
    assert str(caught.value).startswith(f'<text>:1:35: "{escape}" in source means a control character\n')
    assert str(caught.value).endswith("\n  write a backslash as \\\\, in paths better /")


def test_known_escapes_are_read() -> None:
    text = r'name: "\a\b\f\n\r\t\v\\\"\' \0 \12 \303\251 \x41 \xAu \u00e9 \U0001F600"'
    assert prototxt.parse_net(text).name == "\a\b\f\n\r\t\v\\\"' \0 \n é A \nu é \U0001f600"


def test_windows_path_says_how_to_write_it() -> None:
    with pytest.raises(PrototxtError) as caught:
        prototxt.parse_net(r'layer { data_param { source: "D:\lmdb" } }')
    assert str(caught.value).endswith("  write a backslash as \\\\, in paths better /")


def test_a_comment_of_another_language_says_how_comments_begin() -> None:
    for text in ('name: "n"\n// net\n', 'name: "n" /* net */'):
        with pytest.raises(PrototxtError) as caught:
            prototxt.parse_net(text)
        assert str(caught.value).endswith("  comments begin with #")


def test_errors_of_legacy_forms_name_the_file() -> None:
    with pytest.raises(NetError, match=r"^old\.prototxt: net has 1 `layer` and 1 old `layers`"):
        prototxt.parse_net('layer { name: "a" } layers { name: "b" }', path="old.prototxt")


class TestMergeSolver:
    def merged(self, overrides: str) -> caffe_pb2.SolverParameter:
        solver = prototxt.parse_solver(
            'net: "n" base_lr: 0.5 stepvalue: 10 stepvalue: 20 train_state { level: 3 stage: "a" }'
        )
        return prototxt.merge_solver(solver, overrides)

    def test_scalar_replaces(self) -> None:
        assert self.merged("base_lr: 0.25").base_lr == 0.25
        assert self.merged("base_lr: 0.25").net == "n"

    def test_repeated_replaces_all(self) -> None:
        assert list(self.merged("stepvalue: 7").stepvalue) == [7]
        assert list(self.merged("max_iter: 7").stepvalue) == [10, 20]

    def test_message_is_merged_by_the_same_rule(self) -> None:
        state = self.merged('train_state { stage: "b" }').train_state
        assert (state.level, list(state.stage)) == (3, ["b"])

    def test_original_is_not_changed(self) -> None:
        solver = prototxt.parse_solver("max_iter: 1")
        prototxt.merge_solver(solver, "max_iter: 2")
        assert solver.max_iter == 1

    def test_old_solver_type_overrides_type(self) -> None:
        assert prototxt.merge_solver(prototxt.parse_solver('type: "SGD"'), "solver_type: ADAM").type == "Adam"

    def test_error_names_the_overrides(self) -> None:
        with pytest.raises(PrototxtError, match=r'^<solver overrides>:1:1: unknown field "base_rl" in the solver'):
            self.merged("base_rl: 1")


@pytest.mark.parametrize("text", ["display: 20\ndisplay: 30\n", 'net: "a"\nnet: "b"\n'])
def test_a_field_that_is_given_twice_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.prototxt").write_text(text)
    name = text.partition(":")[0]
    with pytest.raises(
        PrototxtError, match=rf's.prototxt:2:\d+: "{name}" in the solver is given twice; it can be given'
    ):
        prototxt.read_solver(tmp_path / "s.prototxt")


LENET = (FIXTURES / "caffe" / "nets" / "lenet_mini.prototxt").read_text()
FRAGMENTS = st.sampled_from(
    ["layer {", "}", "name: ", '"a"', "'", "\\", "\0", "convolution_param", "pool: MAX", "<", ">", "[", "]", ":", "#",
     "1e400", "-1", "0x", "nan", "\n", "\t", "é", "\ufffd", "layers", "99999999999999999999", "dim: -1", "input_dim: 3",
     "{", ",", ";", "layer", 'top: "x"', "clip_param { min: 1 }", "type: DATA"]
)  # fmt: skip


def read_refusal(read: Callable[[], Message]) -> str | None:
    """Return the importer's message, or None after a read; any other error fails the test."""
    try:
        read()
    except CaffeImportError as error:
        return str(error)
    return None


def refuses_or_reads(text: str) -> None:
    for parse in (prototxt.parse_net, prototxt.parse_solver):
        refusal = read_refusal(partial(parse, text))
        assert refusal is None or 0 < len(refusal) < 2000


@settings(max_examples=60)
@given(st.lists(FRAGMENTS, max_size=40).map(" ".join))
def test_fragments_in_any_order_give_a_message_or_a_named_error(text: str) -> None:
    refuses_or_reads(text)


@settings(max_examples=60)
@given(st.text(max_size=200))
def test_any_text_gives_a_message_or_a_named_error(text: str) -> None:
    refuses_or_reads(text)


@settings(max_examples=60)
@given(st.integers(0, len(LENET) - 1), st.integers(0, 30), FRAGMENTS)
def test_mutated_net_gives_a_message_or_a_named_error(start: int, length: int, inserted: str) -> None:
    refuses_or_reads(LENET[:start] + inserted + LENET[start + length :])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_bytes_give_a_message_or_a_named_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.prototxt"
    path.write_bytes(content)
    refusal = read_refusal(partial(prototxt.read_net, path))
    assert refusal is None or refusal.startswith(str(path))
