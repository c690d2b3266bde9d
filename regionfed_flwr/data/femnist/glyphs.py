"""Characters in the hand of made-up writers, rendered from the fonts that matplotlib carries.

The centre lines of a font's strokes are traced again with a pen. A writer has a pair of fonts, a pen, a slant and a
habitual distortion of each character; every sample varies a little around them.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import ndimage

CLASSES = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
IMAGE_SIZE = 28
FONTS = (
    "DejaVuSans",
    "DejaVuSans-Oblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Oblique",
    "DejaVuSerif",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralItalic",
    "cmmi10",
    "cmr10",
    "cmss10",
    "cmti10",
    "cmtt10",
)

_CANVAS = 64  # side of the square in which a font's character is drawn before it is sampled
_BOX = 48  # longer side of a character on the canvas
_WAVES = 3  # lowest cosines of each axis that make up a distortion

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class WriterStyle:
    """What all samples of a writer have in common.

    Attributes
    ----------
    font_of_class : ndarray of int, shape (62,)
        Index into :data:`FONTS` for each character.
    affine : ndarray, shape (2, 2)
        Slant and proportions: from the image's axes to the canvas's, rows first.
    waves : ndarray, shape (62, 2, 9)
        Distortion of each character, as coefficients of cosines, in pixels of the canvas.
    pen : float
        Half the width of a stroke, in pixels of the canvas.
    unsteadiness : float
        Size of the variation between samples.
    grain : float
        Share of a pixel's ink that noise may take away.
    """

    font_of_class: npt.NDArray[np.int64]
    affine: Floats
    waves: Floats
    pen: float
    unsteadiness: float
    grain: float


def draw_style(generator: np.random.Generator) -> WriterStyle:
    """Draw a writer."""
    main, other = generator.choice(len(FONTS), size=2, replace=False)
    slant, turn = generator.normal(0.0, 0.2), generator.normal(0.0, 0.06)
    height, width = generator.uniform(0.8, 1.15), generator.uniform(0.75, 1.1)
    return WriterStyle(
        font_of_class=np.where(generator.random(len(CLASSES)) < 0.7, main, other),
        affine=np.array([[1 / height, turn], [slant, 1 / width]], dtype=np.float32),
        waves=_waves(generator, len(CLASSES), generator.uniform(1.0, 2.6)),
        pen=generator.uniform(1.7, 3.8),
        unsteadiness=generator.uniform(0.5, 1.3),
        grain=generator.uniform(0.0, 0.3),
    )


def write(style: WriterStyle, labels: npt.NDArray[np.int64], generator: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Write characters in a writer's hand.

    Parameters
    ----------
    style : WriterStyle
    labels : ndarray of int, shape (n,)
        Indices into :data:`CLASSES`.
    generator : numpy.random.Generator
        Varies the samples.

    Returns
    -------
    ndarray of uint8, shape (n, 28, 28)
        White ink (255) on black.
    """
    count, shaky = len(labels), style.unsteadiness
    affine = style.affine + generator.normal(0.0, 0.05 * shaky, (count, 2, 2)).astype(np.float32)
    shift = generator.normal(0.0, 1.2 * shaky, (count, 2, 1)).astype(np.float32)
    waves = style.waves[labels] + _waves(generator, count, 0.7 * shaky)
    grid, cosines = _grid()
    where = affine @ grid + shift + waves @ cosines + (_CANVAS - 1) / 2
    distance = np.empty((count, IMAGE_SIZE**2), dtype=np.float32)
    fonts = style.font_of_class[labels]
    for font in np.unique(fonts):
        rows = np.flatnonzero(fonts == font)
        planes = np.broadcast_to(labels[rows, None].astype(np.float32), (len(rows), IMAGE_SIZE**2))
        points = np.stack([planes, where[rows, 0], where[rows, 1]])
        distance[rows] = ndimage.map_coordinates(_centre_distance(FONTS[font]), points, order=1, mode="nearest")
    pen = style.pen + generator.normal(0.0, 0.25 * shaky, (count, 1)).astype(np.float32)
    ink = np.clip((pen - distance) / (_CANVAS / IMAGE_SIZE) + 0.5, 0.0, 1.0)
    ink *= 1.0 - style.grain * generator.random(ink.shape, dtype=np.float32)
    images: npt.NDArray[np.uint8] = np.rint(255 * ink).astype(np.uint8)
    return images.reshape(count, IMAGE_SIZE, IMAGE_SIZE)


def _waves(generator: np.random.Generator, count: int, size: float) -> Floats:
    """Draw distortions, shape (count, 2, 9); finer waves are weaker."""
    order = np.add.outer(np.arange(_WAVES), np.arange(_WAVES)).ravel()
    scale = np.where(order == 0, 0.0, size / np.maximum(order, 1))
    return (scale * generator.normal(size=(count, 2, _WAVES**2))).astype(np.float32)


@lru_cache(maxsize=1)
def _grid() -> tuple[Floats, Floats]:
    """Return the pixels' positions about the centre, in pixels of the canvas, (2, 784), and the cosines, (9, 784)."""
    step = np.arange(IMAGE_SIZE) + 0.5
    along = (step - IMAGE_SIZE / 2) * (_CANVAS / IMAGE_SIZE)
    grid = np.stack(np.meshgrid(along, along, indexing="ij")).reshape(2, -1)
    waves = np.cos(np.pi * np.outer(np.arange(_WAVES), step / IMAGE_SIZE))
    cosines = np.einsum("ay,bx->abyx", waves, waves).reshape(_WAVES**2, -1)
    return grid.astype(np.float32), cosines.astype(np.float32)


@lru_cache(maxsize=len(FONTS))
def _centre_distance(font: str) -> Floats:
    """Return each canvas pixel's distance from the centre line of a font's strokes, shape (62, 64, 64)."""
    lines = _thin(_raster(font))
    return np.stack([ndimage.distance_transform_edt(~line) for line in lines]).astype(np.float32)


def _raster(font: str) -> npt.NDArray[np.bool_]:
    """Draw the 62 characters of a font, all equally large (as LEAF crops them), each in the middle of its canvas."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    file = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{font}.ttf")
    face = ImageFont.truetype(str(file), _CANVAS, layout_engine=ImageFont.Layout.BASIC)
    canvases = []
    for character in CLASSES:
        left, top, right, bottom = face.getbbox(character)
        fitted = face.font_variant(size=_CANVAS * _BOX / max(right - left, bottom - top))
        left, top, right, bottom = fitted.getbbox(character)
        canvas = Image.new("L", (_CANVAS, _CANVAS))
        corner = ((_CANVAS - left - right) / 2, (_CANVAS - top - bottom) / 2)
        ImageDraw.Draw(canvas).text(corner, character, font=fitted, fill=255)
        canvases.append(np.asarray(canvas) > 127)
    return np.stack(canvases)


def _thin(ink: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Thin the strokes on a stack of images with an empty border to lines one pixel wide (Guo and Hall 1989)."""
    ink = ink.copy()
    steps = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))  # clockwise from north
    while True:
        before = ink.sum()
        for half in (4, 0):  # south-west borders, then north-east ones
            ring = np.stack([np.roll(ink, (-dy, -dx), axis=(1, 2)) for dy, dx in steps])
            straight, diagonal = ring[0::2], ring[1::2]
            branches = (~straight & (diagonal | np.roll(straight, -1, axis=0))).sum(0)
            pairs = np.minimum((straight | diagonal).sum(0), (straight | np.roll(diagonal, 1, axis=0)).sum(0))
            inner = (ring[half] | ring[half + 1] | ~ring[(half + 3) % 8]) & ring[half + 2]
            ink &= ~((branches == 1) & (pairs >= 2) & (pairs <= 3) & ~inner)
        if ink.sum() == before:
            return ink
