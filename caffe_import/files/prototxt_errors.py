"""Errors in a prototxt's text with their position: file:line:column, the line with a caret, allowed values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from caffe_import.errors import PrototxtError, did_you_mean
from caffe_import.files.prototxt_scan import Block, Token, layer_of, line_and_column, offset_of, scan_prototxt
from caffe_import.fork_names import FIELD_NAMES, OWN_LAYER, fork_of_field, fork_of_old_type
from caffe_import.other_names import caffe_name
from caffe_import.proto import caffe_pb2

_EXCERPT_WIDTH = 100
_ALLOWED_WIDTH = 110
_WORD_WIDTH = 60
_FEW_NAMES = 20  # of more, most are spelled right in a net's or solver's file
_SIMILARITY = 0.8  # difflib's ratio
_ESCAPE = re.compile(
    r"""\\(?:(?P<known>[abfnrtv\\"'] | (?![4-7][0-7]{2})[0-7]{1,3} | x[0-9a-fA-F]{1,2} | u[0-9a-fA-F]{4}
        | U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}) | .?)""",
    re.VERBOSE | re.DOTALL,
)
_PATH_FIELDS = frozenset(
    "file_name mean_file meanfile net root_folder snapshot_prefix source test_net train_net weights".split()
)
_VALUE_RULES = {
    FieldDescriptor.TYPE_INT32: "a whole number from -2147483648 to 2147483647",
    FieldDescriptor.TYPE_INT64: "a whole number",
    FieldDescriptor.TYPE_UINT32: "a whole number from 0 to 4294967295",
    FieldDescriptor.TYPE_FLOAT: "a number",
    FieldDescriptor.TYPE_DOUBLE: "a number",
    FieldDescriptor.TYPE_BOOL: "true or false",
    FieldDescriptor.TYPE_STRING: "a text in quotes",
}


@dataclass(frozen=True)
class PrototxtText:
    """A prototxt's text, with the path for errors."""

    path: str
    text: str

    def error(
        self,
        offset: int,
        finding: str,
        *,
        width: int = 1,
        allowed: Sequence[str] = (),
        unknown_word: str = "",
        remedy: str = "",
        listed: Sequence[str] = (),
    ) -> PrototxtError:
        """Return the error; ``allowed`` is shown, ``listed`` (already in the finding) only kept as an attribute."""
        line, column = line_and_column(self.text, offset)
        parts = [f"{self.path}:{line}:{column}: {finding}", *self._excerpt(line, column, width)]
        if allowed:
            parts.append(f"  allowed: {_shorten(allowed)}")
        suggestion = did_you_mean(unknown_word, allowed) if len(unknown_word) <= _WORD_WIDTH else ""
        parts += [f"  {hint}" for hint in (suggestion.removeprefix("; "), remedy) if hint]
        # A lone surrogate (from JSON) would make the message itself unprintable.
        message = "\n".join(parts).encode("utf-8", "backslashreplace").decode("utf-8")
        return PrototxtError(message, path=self.path, line=line, column=column, allowed=[*allowed, *listed])

    def _excerpt(self, line: int, column: int, width: int) -> list[str]:
        written = self.text.split("\n", line)[line - 1].rstrip("\r").replace("\t", " ")
        start = max(0, column - 1 - _EXCERPT_WIDTH // 2) if len(written) > _EXCERPT_WIDTH else 0
        shown = written[start : start + _EXCERPT_WIDTH]
        indent = column - 1 - start
        caret = " " * indent + "^" * max(1, min(width, _EXCERPT_WIDTH - indent))
        return [f"{line:5d} | {shown}".rstrip(), f"      | {caret}"]


def without_words(error: PrototxtError, root: str, reason: str) -> PrototxtError:
    """Return an error of a file outside the allowed folders: the position alone, without words of the file.

    Args:
        error: The error with the file's words.
        root: Expected kind: ``net`` or ``solver``.
        reason: Why the words are left out.
    """
    location = f"{error.path}:{error.line}:{error.column}" if error.line else error.path
    msg = f"{location}: is no {root}'s prototxt from here on; {reason}"
    return PrototxtError(msg, path=error.path, line=error.line, column=error.column)


def looks_like_caffe(text: str) -> bool:
    """Return whether most of a text's field names are Caffe's, spelled nearly right: is it a broken net or solver?

    Example:
        >>> looks_like_caffe('nmae: "LeNet" layer { name: "data" }')
        True
        >>> looks_like_caffe("root:$6$saltandhash:19000:0:99999:7:::")
        False
    """
    # The fields of forks' messages are not listed, so the names in such a block are not counted. A block at the file's
    # top is counted: other programs' files have blocks of these names, too.
    names = [
        token.text
        for token in scan_prototxt(text).tokens
        if token.role == "field" and FIELD_NAMES.isdisjoint(token.block.field_path()[1:])
    ]
    unknown = [name for name in names if name not in _field_names()]
    if 2 * len(unknown) >= len(names) and len(names) <= _FEW_NAMES:
        unknown = [name for name in unknown if not get_close_matches(name.lower(), _field_names(), 1, _SIMILARITY)]
    return 2 * len(unknown) < len(names)


@cache
def _field_names() -> frozenset[str]:
    """Return the names of all fields of Caffe's messages and of the forks' further fields."""
    messages = caffe_pb2.DESCRIPTOR.message_types_by_name.values()
    return FIELD_NAMES.union(field.name for message in messages for field in message.fields)


def solver_field_error(
    finding: str,
    field_name: str,
    sources: Sequence[tuple[str, str]],
    *,
    path: str,
    allowed: Sequence[str] = (),
    at_end: bool = False,
) -> PrototxtError:
    """Return the error for a solver's field whose value is refused, with the place where it is written.

    Args:
        finding: The value and the allowed values.
        field_name: The field.
        sources: (name of the text, text): the one to look in first comes first.
        path: Names the solver where no source has the field.
        allowed: For the error's attribute.
        at_end: Without a source that has the field, show the end of the last source: a line is to be added there.
    """
    for name, text in sources:
        tokens = [
            token
            for token in scan_prototxt(text).tokens
            if token.block.parent is None and token.field_name == field_name and token.role == "value"
        ]
        if tokens:
            return PrototxtText(name, text).error(tokens[-1].start, finding, width=len(tokens[-1].text), listed=allowed)
    if at_end and sources and sources[-1][1].strip():
        name, text = sources[-1]
        last_line = text.rstrip().rpartition("\n")[2].lstrip()
        return PrototxtText(name, text).error(len(text.rstrip()) - len(last_line), finding, width=len(last_line))
    return PrototxtError(f"{path}: {finding}", path=path, allowed=allowed)


def check_strings(source: PrototxtText) -> None:
    r"""Refuse quoted strings that protobuf's C++ parser refuses and protobuf's Python parser mangles or only warns of.

    Raises:
        PrototxtError: Bytes that are not UTF-8, an unknown escape, or a control character in a path: ``"data\train"``.
    """
    if "\ufffd" not in source.text and "\\" not in source.text:
        return
    for token in scan_prototxt(source.text).tokens:
        if "\ufffd" in token.text:
            raise source.error(token.start, "bytes that are not UTF-8 text; save the file as UTF-8")
        if token.text[0] not in "\"'":
            continue
        for escape in _ESCAPE.finditer(token.text):
            is_control = token.field_name in _PATH_FIELDS and escape[0][1:] in tuple("abfnrtv")
            if escape["known"] is None or is_control:
                finding = f'unknown escape "{escape[0]}" in quotes'
                if is_control:
                    finding = f'"{escape[0]}" in {token.field_name} means a control character'
                remedy = "write a backslash as \\\\, in paths better /"
                raise source.error(token.start + escape.start(), finding, width=len(escape[0]), remedy=remedy)


def _shorten(allowed: Sequence[str]) -> str:
    shown = ""
    for word in allowed:
        longer = f"{shown}, {word}" if shown else word
        if len(longer) > _ALLOWED_WIDTH:
            return f"{shown}, ..."
        shown = longer
    return shown


def _word(text: str) -> str:
    return text if len(text) <= _WORD_WIDTH else f"{text[:_WORD_WIDTH]}..."


def explain_parse_error(
    error: text_format.ParseError, source: PrototxtText, root_type: Descriptor, root: str
) -> PrototxtError:
    """Return the fault of a text after protobuf's parser refused the text.

    Args:
        error: The parser's error, with the right position and a text that is not for users.
        source: The text.
        root_type: Message type of the text.
        root: Name of the whole text in errors: ``net`` or ``solver``.
    """
    text = source.text
    scan = scan_prototxt(text)
    offset = offset_of(text, error.GetLine() or 1, error.GetColumn() or 1)
    reason = _plain_reason(error)
    unclosed = scan.unclosed()
    if unclosed is not None and reason in ('expected "}"', 'expected ">"'):
        finding = f'"{unclosed.name}"{_where(unclosed.parent, root)} is never closed: "}}" is missing'
        return source.error(unclosed.start, finding, width=len(unclosed.name))
    token = scan.at(offset)
    if token is not None:
        explained = _explain_place(token, root_type, source, root, reason)
        if explained is not None:
            return explained
    mark = re.match(r"\w+|\S", text[offset : offset + _WORD_WIDTH])
    found_text = _word(token.text) if token else mark[0] if mark else "the end of the text"
    finding = f"{reason}, found {found_text}"
    if found_text in ("}", ">") and reason == "expected a field name":
        finding = f'a "{found_text}" too many, or one too few before it'
    remedy = "comments begin with #" if found_text == "/" else ""
    return source.error(offset, finding, width=len(token.text) if token else 1, remedy=remedy)


_TWICE = "should not have multiple"
"""What protobuf says of a field that is given twice."""


def _plain_reason(error: text_format.ParseError) -> str:
    """Return protobuf's message without the position and the quote of the text."""
    reason = re.sub(r"^\d+:\d+ : ('.*?': )?", "", str(error), flags=re.DOTALL).removesuffix(".")
    if reason.startswith("Expected identifier"):
        return "expected a field name"
    if "ending quote" in reason:
        return "a text without its ending quote"
    if "codec can't" in reason:
        return "a text whose backslash escapes do not give UTF-8"
    if _TWICE in reason:
        return _TWICE
    return _word(re.sub(r"^Expected\b", "expected", reason))


def _message_of(block: Block, root_type: Descriptor) -> Descriptor | None:
    """Return the message type of a block, None if a name on the way to the block is unknown."""
    descriptor: Descriptor | None = root_type
    for name in block.field_path():
        declared = descriptor.fields_by_name.get(name) if descriptor is not None else None
        descriptor = declared.message_type if declared is not None else None
    return descriptor


def _explain_place(
    token: Token, root_type: Descriptor, source: PrototxtText, root: str, reason: str
) -> PrototxtError | None:
    descriptor = _message_of(token.block, root_type)
    if descriptor is None or not token.field_name:
        return None
    declared = descriptor.fields_by_name.get(token.field_name)
    width = len(token.text)
    if declared is None:
        where = _where(token.block, root)
        if fork := fork_of_field(descriptor.name, token.field_name):
            finding = f"{token.field_name}{where} belongs to {fork}, not to Caffe 1.0; not supported here"
            return source.error(token.start, finding, width=width, remedy=_fork_remedy(descriptor))
        finding = f'unknown field "{_word(token.field_name)}"{where}'
        if token.field_name.isdecimal():
            return source.error(token.start, finding, width=width, remedy=_DECIMAL_POINT)
        allowed = sorted(descriptor.fields_by_name)
        is_strange = _names_strange_layer(token, descriptor)
        remedy = OWN_LAYER if is_strange else _other_root(token, root) or _missing_brace(token, root_type)
        remedy = remedy or _other_name(token.field_name, descriptor)
        unknown_word = "" if is_strange or remedy.startswith(_CALLED) else token.field_name
        return source.error(
            token.start, finding, width=width, allowed=allowed, unknown_word=unknown_word, remedy=remedy
        )
    if reason == _TWICE:
        finding = f'"{token.field_name}"{_where(token.block, root)} is given twice; it can be given once'
        return source.error(token.start, finding, width=width)
    if token.role != "value" or _value_fits(declared, token.text):
        return None
    if declared.enum_type is _OLD_TYPES and (fork := fork_of_old_type(token.text)):
        finding = f"{_field_path(token, root)} is {token.text}, of {fork}, not of Caffe 1.0; not supported here"
        return source.error(token.start, finding, width=width, remedy=OWN_LAYER)
    allowed = _allowed_values(declared)
    finding = f"{_field_path(token, root)} is {_word(token.text)}"
    return source.error(token.start, finding, width=width, allowed=allowed, unknown_word=token.text)


_CALLED = "Caffe calls it "
_DECIMAL_POINT = "a number has a decimal point, as 0.01, and no comma"
_OLD_TYPES = caffe_pb2.V1LayerParameter.DESCRIPTOR.fields_by_name["type"].enum_type


def _fork_remedy(owner: Descriptor) -> str:
    """Return what to do about a fork's field, by the message that has the field."""
    if owner in (caffe_pb2.LayerParameter.DESCRIPTOR, caffe_pb2.V1LayerParameter.DESCRIPTOR):
        return OWN_LAYER
    is_root = owner in (caffe_pb2.NetParameter.DESCRIPTOR, caffe_pb2.SolverParameter.DESCRIPTOR)
    return "Caffe 1.0 works without it: remove it" if is_root else ""


def _other_name(written: str, owner: Descriptor) -> str:
    """Return Caffe's name for a name of another framework; empty for an unknown name."""
    if owner is caffe_pb2.SolverParameter.DESCRIPTOR and written.lower() in ("batch_size", "batchsize"):
        return f"{_CALLED}batch_size too, and the data layer of the net has it"
    field = caffe_name(written, list(owner.fields_by_name))
    unit = ", counted in minibatches" if "epoch" in written.lower() else ""
    return f"{_CALLED}{field}{unit}" if field else ""


def _names_strange_layer(token: Token, owner: Descriptor) -> bool:
    """Return whether an unknown field holds the options of a layer that is not Caffe's, such as quartet_loss_param."""
    is_option = owner is caffe_pb2.LayerParameter.DESCRIPTOR and token.field_name.endswith("_param")
    return is_option and not get_close_matches(token.field_name, list(owner.fields_by_name), 1, _SIMILARITY)


def _other_root(token: Token, root: str) -> str:
    """Return a hint if the text is a solver where a net was expected, or the other way round."""
    other_roots = {"net": caffe_pb2.SolverParameter.DESCRIPTOR, "solver": caffe_pb2.NetParameter.DESCRIPTOR}
    if token.block.parent is not None or token.field_name not in other_roots[root].fields_by_name:
        return ""
    other = "solver" if root == "net" else "net"
    return f"this looks like a {other}'s prototxt; a {root}'s was expected"


def _missing_brace(token: Token, root_type: Descriptor) -> str:
    """Return a hint if the field belongs to the root: probably an earlier block was left open."""
    if token.block.parent is None or token.field_name not in ("layer", "layers"):
        return ""
    return 'a "}" is missing before it' if token.field_name in root_type.fields_by_name else ""


def _value_fits(declared: FieldDescriptor, text: str) -> bool:
    if declared.enum_type is not None:
        return text in declared.enum_type.values_by_name
    if declared.type == FieldDescriptor.TYPE_STRING:
        return text[:1] in "\"'"
    if declared.type == FieldDescriptor.TYPE_BOOL:
        return text in ("true", "false", "True", "False", "t", "f", "0", "1")
    return declared.message_type is not None


def _allowed_values(declared: FieldDescriptor) -> list[str]:
    if declared.enum_type is not None:
        return [value.name for value in declared.enum_type.values]
    return [_VALUE_RULES[declared.type]]


def _layer_name(layer: Block) -> str:
    return f'layer "{layer.label}"' if layer.label else f"{layer.name} number {layer.position}"


def _where(block: Block | None, root: str) -> str:
    """Return `` in convolution_param of layer "conv2"``, `` in layer "conv2"`` or `` in the net``."""
    if block is None or block.parent is None:
        return f" in the {root}"
    layer, path = layer_of(block)
    if layer is None:
        return f" in {'.'.join(path)} of the {root}"
    return f" in {'.'.join(path)} of {_layer_name(layer)}" if path else f" in {_layer_name(layer)}"


def _field_path(token: Token, root: str) -> str:
    layer, path = layer_of(token.block)
    owner = _layer_name(layer) if layer is not None else f"the {root}"
    return f"{'.'.join((*path, token.field_name))} of {owner}"


def missing_field_error(missing: str, source: PrototxtText, root: str) -> PrototxtError:
    """Return the error for a required field; ``missing`` is protobuf's path to it: ``layer[0].clip_param.max``."""
    *outer, name = missing.split(".")
    block_path = [(step.partition("[")[0], int(step.partition("[")[2].rstrip("]") or 0) + 1) for step in outer]
    block = next(
        (
            b
            for b in scan_prototxt(source.text).blocks
            if [(step.name, step.position) for step in b.path()] == block_path
        ),
        None,
    )
    if block is None:
        return PrototxtError(f"{source.path}: {missing} is required but not given", path=source.path, allowed=[name])
    finding = f'"{name}"{_where(block, root)} is required but not given'
    return source.error(block.start, finding, width=len(block.name), listed=[name])
