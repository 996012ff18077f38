"""Decoders' output on descriptor 2 is caught for each image; all other output reaches the log."""

import os

import cv2
import numpy as np

from deepspark_ops.ingest.images.decoder_messages import decoder_messages
from tests.reference.raw_sources import image_bgr


def test_a_damaged_jpeg_is_told_apart_from_sound_ones(capfd):
    sound = cv2.imencode(".jpg", image_bgr(0, (16, 16)))[1].tobytes()
    damaged = sound[:-2] + b"abcdef" + sound[-2:]
    with decoder_messages() as messages:
        texts = []
        for content in (sound, damaged, sound):
            assert cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR) is not None
            texts.append(messages.take())
        os.write(2, b"worker: a line of the log\n")
        os.write(2, b"libpng warning: iCCP: known incorrect sRGB profile\n")
        texts.append(messages.take())
        os.write(2, b"another line\n")
    assert texts[0] == texts[2] == texts[3] == ""
    assert "Corrupt JPEG data" in texts[1]
    assert capfd.readouterr().err == "worker: a line of the log\nanother line\n"
