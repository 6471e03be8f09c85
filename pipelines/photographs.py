"""A small set of labelled photographs as TFRecord files, made without a download.

The pictures come with the scikit-image package and are free of copyright (CC0 or public domain).
Each record is one crop out of one of them, as JPEG, with the photograph that it was cut from as
its label: enough to learn from, and the reading, decoding and augmenting are those of a real
training.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

CROP_PIXELS = 192
"""Height and width of a crop: as large as the smallest photograph (300 pixels high) allows with
some variety."""
JPEG_QUALITY = 90

PHOTOGRAPHS = {
    "astronaut": "astronaut.png",
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "galaxies": "hubble_deep_field.jpg",
    "rocket": "rocket.jpg",
}
"""Label name to file in scikit-image's data folder. The labels' numbers are their places here."""


def photograph_folder() -> Path:
    """Where the photographs lie on this machine.

    Raises:
        ModuleNotFoundError: scikit-image is not installed; says how to install it.
    """
    # Located without importing it: that would load SciPy for a few files.
    spec = find_spec("skimage")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            "the demo's photographs come with scikit-image, which is not installed: "
            "pip install 'cachew-service[demo]'"
        )
    return Path(spec.origin).parent / "data"


def kept_records(folder: Path, *, crops: int, files: int) -> Path:
    """The folder of such a data set, which is made only if it is not there yet.

    A file that is written anew counts as changed, even with the same records in it, and what was
    stored of it is not used again.

    Args:
        folder: holds data sets; made if it is not there.
        crops: how many records in all.
        files: how many files they are spread over.

    Raises:
        ValueError: there are fewer crops than files, or no file.
        ModuleNotFoundError: scikit-image is not installed.
    """
    kept = folder / f"photographs-{crops}-in-{files}"
    if kept.is_dir():
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="unfinished-", dir=folder) as draft:
        write_records(Path(draft, "records"), crops=crops, files=files)
        Path(draft, "records").rename(kept)
    return kept


def write_records(folder: Path, *, crops: int, files: int, seed: int = 0) -> list[Path]:
    """Cuts crops out of the photographs, in turn, and writes them as TFRecord files.

    Args:
        folder: gets the files; made if it is not there.
        crops: how many records in all.
        files: how many files they are spread over, at most one more record in one than in another.
        seed: of the places where crops are cut.

    Returns:
        The files' paths, sorted.

    Raises:
        ValueError: there are fewer crops than files, or no file.
        ModuleNotFoundError: scikit-image is not installed.
    """
    if not 1 <= files <= crops:
        raise ValueError(
            f"crops={crops} can't be spread over files={files}: there must be at least one file, "
            "and a crop for every file"
        )
    import tensorflow as tf

    source = photograph_folder()
    pictures = [_decode(source / name) for name in PHOTOGRAPHS.values()]
    places = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"photographs-{n:05d}-of-{files:05d}.tfrecord" for n in range(files)]
    writers = [tf.io.TFRecordWriter(str(path)) for path in paths]
    try:
        for number in range(crops):
            label = number % len(pictures)
            # By whole rounds of labels, so that each file holds all of them.
            writer = writers[number // len(pictures) % files]
            writer.write(_record(_cut(pictures[label], places), label))
    finally:
        for writer in writers:
            writer.close()
    return paths


def _decode(path: Path) -> np.ndarray:
    import tensorflow as tf

    picture = tf.io.decode_image(tf.io.read_file(str(path)), channels=3, expand_animations=False)
    pixels: np.ndarray = picture.numpy()
    return pixels


def _cut(picture: np.ndarray, places: np.random.Generator) -> np.ndarray:
    top = places.integers(picture.shape[0] - CROP_PIXELS + 1)
    left = places.integers(picture.shape[1] - CROP_PIXELS + 1)
    return picture[top : top + CROP_PIXELS, left : left + CROP_PIXELS]


def _record(crop: np.ndarray, label: int) -> bytes:
    import tensorflow as tf

    jpeg = tf.io.encode_jpeg(crop, quality=JPEG_QUALITY).numpy()
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    record: bytes = example.SerializeToString()
    return record
