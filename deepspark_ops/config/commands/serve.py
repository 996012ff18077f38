"""Options of ``deepspark serve``."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from deepspark_ops.config.base import MemorySize
from deepspark_ops.config.commands.predict import RawImageConfig
from deepspark_ops.config.shared_options.devices import DeviceChoice
from deepspark_ops.config.shared_options.saliency import DEFAULT_SQUARES, OcclusionSquares


class ServeConfig(RawImageConfig):
    """A bundle behind HTTP on this machine."""

    bundle: Path = Field(description="Bundle of a model, from deepspark export or convert; or a run with a bundle")
    port: int = Field(8000, ge=0, le=65_535, description="Port; 0: any that is free")
    host: str = Field(
        "127.0.0.1", min_length=1, description="Address to listen on; others than this machine reach it only by another"
    )
    host_names: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9._-]+(,[A-Za-z0-9._-]+)*$",
        description="Further names by which callers without a token reach the server, also through a proxy, commas"
        " between them; IP addresses and this machine's own name need none",
        json_schema_extra={"allowed": "names of hosts, commas between them, like models.example.org,models"},
    )
    token_file: Path | None = Field(
        None,
        description="File with the token that callers must send as 'Authorization: Bearer TOKEN'; default: what the"
        " environment variable DEEPSPARK_SERVE_TOKEN holds, else none",
    )
    batch_size: int = Field(32, ge=1, le=10_000, description="Samples of a graph call at most")
    batch_wait_ms: float = Field(
        2.0, ge=0, le=1_000, description="How long a request may wait for others that go into the same graph call"
    )
    queue_size: int = Field(
        64, ge=1, le=10_000, description="Requests in progress at most; one more is answered with 503"
    )
    max_upload: MemorySize = Field(16 * 2**20, description="Bytes of a request at most, e.g. 16MiB")
    max_image_pixels: int = Field(
        50_000_000, ge=1, le=2**30, description="Pixels of an image at most, as its file says before it is decoded"
    )
    upload_timeout_s: float = Field(
        30.0, gt=0, le=3_600, description="Headers or body of a request that take longer to arrive are given up"
    )
    timeout_s: float = Field(
        60.0, gt=0, le=3_600, description="A request that takes longer after its last byte is given up"
    )
    occlusion_squares: OcclusionSquares = DEFAULT_SQUARES
    devices: DeviceChoice = "auto"
    threads: int | None = Field(None, ge=1, le=1_024, description="Threads; default: the number of cores")
