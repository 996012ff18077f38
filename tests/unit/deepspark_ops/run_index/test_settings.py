"""Options of a run on the page that compares runs."""

import json

from deepspark_ops.run_index.settings import settings_of
from deepspark_ops.run_index.summary import RunSummary
from deepspark_ops.run_paths import RunPaths


def test_options_of_several_stages_are_told_by_their_own_names(tmp_path):
    config = {
        "n_workers": 2, "overlap": True, "resume": None, "weights": ["a", "b"], "run_dir": "/runs/x",
        "named_files": {"confined": False, "allowed_root": ["/data", "/more"], "python_layers": []},
    }  # fmt: skip
    RunPaths(tmp_path).config.write_text(json.dumps(config))
    assert settings_of(tmp_path, RunSummary(net="lenet", dataset_digest="")) == {
        "net": "lenet", "dataset digest": "", "n_workers": "2", "overlap": "true", "resume": "", "weights": "a, b",
        "confined": "false", "allowed_root": "/data, /more", "python_layers": "",
    }  # fmt: skip
