"""`cloakwork demo cifar10`: photographs of animals and vehicles, or one's own pictures, read by a server that cannot see them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from cloakwork.app.cli.demo.image_run import Asked, Pictures, show_encrypted
from cloakwork.app.cli.demo.picture import has_pillow
from cloakwork.app.cli.shared.console import FailureError, JsonOption, WrongCallError
from cloakwork.app.cli.shared.device_options import DeviceOption, ThreadsOption, checked_device
from cloakwork.app.cli.shared.model_files import ModelOption, find_model
from cloakwork.fhe_core.errors import how_to_install
from cloakwork.training.cifar10_data import CLASSES, load_cifar10

PICTURE = Path("cloakwork-demo-cifar10.png")
_SIDE = 32
_LEVELS_PER_LEVEL = 257  # of 16 bits for one of 8


def cifar10(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PICTURE]...", help="Use pictures of your own (PNG, JPEG, ..), cut to squares of 32 x 32."
        ),
    ] = None,
    model_name: ModelOption = "cifar10-vgg",
    count: Annotated[
        int | None,
        typer.Option("--images", min=1, max=10_000, help="Encrypt N test images of CIFAR-10 (default: 2)."),
    ] = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 1,
    shown: Annotated[int, typer.Option("--show", min=0, help="Show N images in the terminal.")] = 3,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture", help=f"Write a picture to this .png or .svg file (default: {PICTURE}; none with --json -)."
        ),
    ] = None,
    json_path: JsonOption = None,
) -> None:
    """Let a server classify photographs that it cannot see.

    An image takes less than a second on a GPU, and minutes on a CPU.
    """
    checked_device(device)
    if files and count is not None:
        raise WrongCallError("--images: goes with the test images; leave it out for pictures of your own")
    pictures = _own(files) if files else _of_test(count or 2)
    model = find_model(model_name)
    show_encrypted(model, pictures, Asked(model_name, device, threads, shown, picture, PICTURE, json_path))


def _of_test(count: int) -> Pictures:
    """So many, evenly over all, which come class by class; here the classes take turns."""
    try:
        images, labels = load_cifar10("test")
    except (FileNotFoundError, ImportError) as error:
        raise FailureError(f"{error}; or name pictures of your own: cloakwork demo cifar10 cat.jpg") from error
    chosen = np.arange(count) * len(images) // count
    turn = np.arange(count) - np.searchsorted(labels[chosen], labels[chosen])
    chosen = chosen[np.argsort(turn, kind="stable")]
    return _pictures(images[chosen].astype(np.float64), labels[chosen], "test images of CIFAR-10", "cifar10")


def _own(files: list[Path]) -> Pictures:
    if not has_pillow():
        raise FailureError(f"pictures need Pillow; {how_to_install('demo')}")
    images = np.stack([_read(path) for path in files])
    return _pictures(images, None, "pictures of your own" if len(files) > 1 else "picture of your own", "files")


def _pictures(images: NDArray[np.float64], labels: NDArray[np.int64] | None, source: str, data: str) -> Pictures:
    return Pictures(images, labels, (3, _SIDE, _SIDE), source, data, CLASSES)


def _read(path: Path) -> NDArray[np.float64]:
    """Returns [3, 32, 32] in [0, 1]: the square in the middle, the right way up."""
    from PIL import Image, ImageOps, UnidentifiedImageError  # the extra `demo`

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                upright = ImageOps.exif_transpose(opened)
                if upright.mode.startswith("I;16"):  # Pillow would cut off what is above 255
                    upright = Image.fromarray((np.asarray(upright) // _LEVELS_PER_LEVEL).astype(np.uint8))
                elif upright.mode in ("I", "F"):
                    raise FailureError(f"{path}: expected 8 or 16 bits a channel, got a picture of 32")
                square = ImageOps.fit(upright.convert("RGB"), (_SIDE, _SIDE), Image.Resampling.BOX)
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise FailureError(f"{path}: expected a picture: {error}") from error
    pixels: NDArray[np.float64] = np.asarray(square, dtype=np.float64).transpose(2, 0, 1) / 255
    return pixels
