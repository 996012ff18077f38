"""The module of a Python layer is imported only with permission: an import runs code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from caffe_import.errors import NetError
from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec
from caffe_import.net.python_layers import allow_python_modules

MODULE = """
from pathlib import Path
from caffe_import.net.python_layers import python_layer
Path(r"{mark}").touch()

@python_layer(module="{name}", name="Same")
class Same:
    def setup(self, param_str, bottom_shapes):
        pass
    def reshape(self, bottom_shapes):
        return bottom_shapes
    def forward(self, bottoms, *, is_training):
        return bottoms
"""


def build_python_layer(module: str, layer: str = "Same") -> None:
    text = f"""layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: 1 }} }} }}
    layer {{ name: "p" type: "Python" bottom: "x" top: "y" python_param {{ module: "{module}" layer: "{layer}" }} }}"""
    build_net_spec(parse_net(text), phase="TEST")


@pytest.mark.parametrize("allowed", [["other_{}"], ["strange_{}", "other"], None], ids=["another", "named", "all"])
def test_code_runs_only_if_its_module_is_allowed(
    allowed: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"strange_{tmp_path.name}"
    mark = tmp_path / "was_run"
    (tmp_path / f"{name}.py").write_text(MODULE.format(mark=mark, name=name))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NetError, match=f'layer "p" .*module="{name}" is not imported: .*may be .none.;') as refused:
        build_python_layer(name)
    assert "--allow-python-layers" in str(refused.value)
    allow_python_modules(None if allowed is None else [pattern.format(tmp_path.name) for pattern in allowed])
    if allowed == ["other_{}"]:
        with pytest.raises(NetError, match="not among the modules that may be"):
            build_python_layer(name)
        assert not mark.exists()
        assert name not in sys.modules
    else:
        build_python_layer(name)
        assert mark.exists()
        monkeypatch.delitem(sys.modules, name)
