from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.ft2font import FT2Font
from scipy import ndimage

from regionfed_flwr.core.seeding import numpy_generator
from regionfed_flwr.data.femnist.glyphs import CLASSES, FONTS, _centre_distance, _raster, _thin, draw_style, write

ALL = np.arange(62)


def test_characters_are_in_the_order_of_leaf() -> None:
    assert "".join(CLASSES) == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize("font", FONTS)
def test_fonts_are_complete(font: str) -> None:
    face = FT2Font(str(Path(matplotlib.get_data_path(), "fonts", "ttf", f"{font}.ttf")))
    glyphs = [face.get_char_index(ord(character)) for character in CLASSES]
    assert 0 not in glyphs and len(set(glyphs)) == len(CLASSES)
    assert face.get_glyph_name(face.get_char_index(ord("a"))) == "a"  # symbol fonts put other signs there


def test_thinning_keeps_every_stroke_and_its_joints() -> None:
    ink = _raster("DejaVuSans")
    lines = _thin(ink)
    assert not (lines & ~ink).any()
    assert lines.sum() < 0.3 * ink.sum()
    for thick, thin in zip(ink, lines, strict=True):
        eight = np.ones((3, 3))
        assert ndimage.label(thick, eight)[1] == ndimage.label(thin, eight)[1]


def test_thinning_of_a_bar_is_its_middle() -> None:
    ink = np.zeros((1, 15, 15), dtype=bool)
    ink[0, 3:12, 6:9] = True
    rows, columns = np.nonzero(_thin(ink)[0])
    assert set(columns) == {7}
    assert len(rows) >= 7


def test_distance_is_zero_on_the_lines_and_slopes_by_at_most_one() -> None:
    distance = _centre_distance("cmr10")
    assert distance.shape == (62, 64, 64)
    assert (distance.min(axis=(1, 2)) == 0).all()
    assert np.abs(np.diff(distance, axis=1)).max() <= 1 + 1e-6


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**31))
def test_every_writer_leaves_ink_on_a_dark_ground(seed: int) -> None:
    images = write(draw_style(numpy_generator(seed, "style")), ALL, numpy_generator(seed, "sample"))
    assert images.shape == (62, 28, 28) and images.dtype == np.uint8
    assert (images.max(axis=(1, 2)) > 120).all()
    assert images.mean() < 90


def test_writers_differ_more_than_their_samples() -> None:
    styles = [draw_style(numpy_generator(0, "style", writer)) for writer in range(12)]
    first, second = (
        np.stack([write(style, ALL, numpy_generator(draw, "s", w)) for w, style in enumerate(styles)]).astype(float)
        for draw in (1, 2)
    )
    within = np.abs(first - second).mean()
    between = np.abs(first - np.roll(second, 1, axis=0)).mean()
    assert 0 < within < 0.8 * between


def test_same_generator_same_picture() -> None:
    style = draw_style(numpy_generator(4, "style"))
    first, second = (write(style, ALL, numpy_generator(4, "sample")) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert write(style, ALL[:0], numpy_generator(4, "sample")).shape == (0, 28, 28)
