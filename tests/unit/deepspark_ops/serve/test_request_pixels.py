"""Requests of images of another range: a large request gives a warning at once, small requests a common warning."""

import logging

from deepspark_ops.predict.pixel_range import FEWEST_IMAGES
from deepspark_ops.serve.request_pixels import LOGGED_EVERY_S, RequestPixels
from tests.unit.deepspark_ops.predict.test_pixel_range import form_of, images_between

TEXT = "8 images: pixels are 0 to 16, those of the training images were 0 to 255"


def test_a_large_request_is_judged_alone(caplog):
    pixels = RequestPixels(form_of((0.0, 255.0)))
    assert pixels.warnings(images_between(0, 255)) == []
    assert caplog.text == ""
    (warning,) = pixels.warnings(images_between(0, 16))
    assert warning.startswith(TEXT)
    assert TEXT in caplog.text


def test_small_requests_are_judged_together_and_logged(caplog):
    caplog.set_level(logging.WARNING)
    pixels = RequestPixels(form_of((0.0, 255.0)))
    for _ in range(FEWEST_IMAGES - 1):
        assert pixels.warnings(images_between(0, 16, 1)) == []
    assert caplog.text == ""
    assert pixels.warnings(images_between(0, 16, 1)) == []
    assert TEXT in caplog.text


def test_bright_images_of_long_ago_hide_nothing(caplog):
    pixels = RequestPixels(form_of((0.0, 255.0)))
    for largest in (255,) * FEWEST_IMAGES + (16,) * 3 * FEWEST_IMAGES:
        pixels.warnings(images_between(0, largest, 1))
    assert TEXT in caplog.text


def test_the_log_is_not_flooded(caplog):
    now = [100.0]
    pixels = RequestPixels(form_of((0.0, 255.0)), clock=lambda: now[0])
    for _ in range(3):
        pixels.warnings(images_between(0, 16))
    assert caplog.text.count(TEXT) == 1
    now[0] += LOGGED_EVERY_S
    pixels.warnings(images_between(0, 16))
    assert caplog.text.count(TEXT) == 2
