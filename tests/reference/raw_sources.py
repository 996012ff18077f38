"""Small raw sources for ingestion tests, written by hand from the formats' descriptions."""

import gzip
import io
import struct
import tarfile
from pathlib import Path

import cv2
import numpy as np


def write_images(folder: Path, n: int, *, n_classes: int = 3, size=(8, 8), suffix: str = ".png") -> Path:
    """Write n colour images img/i<suffix> and list.txt; pixels are smooth noise, label i % n_classes."""
    (folder / "img").mkdir(parents=True)
    lines = []
    for i in range(n):
        cv2.imwrite(str(folder / "img" / f"{i}{suffix}"), image_bgr(i, size))
        lines.append(f"img/{i}{suffix} {i % n_classes}\n")
    (folder / "list.txt").write_text("".join(lines))
    return folder / "list.txt"


def image_bgr(i: int, size=(8, 8)) -> np.ndarray:
    """Image i as OpenCV keeps it: (height, width, 3), BGR."""
    return np.random.default_rng(i).integers(0, 256, (*size, 3), dtype=np.uint8)


def write_tar(path: Path, files: dict[str, bytes], *, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_idx(path: Path, values: np.ndarray) -> Path:
    """Write unsigned bytes as IDX, gzipped if the name ends in .gz."""
    header = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    content = header + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_cifar(path: Path, labels, *, label_bytes: int = 1, seed: int = 0) -> np.ndarray:
    """Write a batch; return the images as RGB planes (n, 3, 32, 32)."""
    planes = np.random.default_rng(seed).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    with path.open("wb") as handle:
        for label, plane in zip(labels, planes, strict=True):
            handle.write(bytes([99] * (label_bytes - 1) + [label]) + plane.tobytes())
    return planes.reshape(-1, 3, 32, 32)
