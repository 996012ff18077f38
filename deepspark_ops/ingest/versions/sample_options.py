"""The options that decide what a dataset's samples are."""

from __future__ import annotations

from typing import Any, Final

from deepspark_ops.config.base import WHERE_IT_RUNS
from deepspark_ops.config.ingest import IngestConfig

_ALWAYS_DIGESTED: Final = frozenset(
    "source test_source test_fraction source_format root_folder labels class_names shard_format encoded resize_height"
    " resize_width gray max_pixel n_classes shuffle seed samples_per_shard".split()
)
"""Options of recipe version 2 from its first day; one that came later counts where it is set, so that it leaves the
digests of datasets made without it as they were."""
_NOT_IN_THE_BYTES: Final = frozenset(
    {"output", "previous", "full", "max_rejected_fraction", "strict", "staging_folder", "staging_size", "unpacked_gib"}
)
"""Where the dataset is and what is allowed to be wrong with it do not change its samples."""


def options_of_samples(config: IngestConfig) -> dict[str, Any]:
    """Return the options as JSON values."""
    options = config.model_dump(mode="json", exclude={*_NOT_IN_THE_BYTES, *WHERE_IT_RUNS})
    return {
        name: value
        for name, value in options.items()
        if name in _ALWAYS_DIGESTED or getattr(config, name) != IngestConfig.model_fields[name].default
    }
