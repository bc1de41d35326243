"""`cloakwork demo mnist`: handwritten digits read by a server that cannot see them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from cloakwork.app.cli.demo.image_run import Asked, Pictures, show_encrypted
from cloakwork.app.cli.shared.console import JsonOption
from cloakwork.app.cli.shared.device_options import DeviceOption, ThreadsOption, checked_device
from cloakwork.app.cli.shared.digits import SOURCES, digits
from cloakwork.app.cli.shared.model_files import ModelOption, find_model

PICTURE = Path("cloakwork-demo-mnist.png")
_SIDE = 28


def mnist(
    model_name: ModelOption = "mnist-mlp-1x30",
    count: Annotated[int, typer.Option("--images", min=1, help="Encrypt N images.")] = 20,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 1,
    source: Annotated[
        str,
        typer.Option(
            "--data",
            metavar="|".join(SOURCES),
            help="Use MNIST, or digits drawn by this program; auto: MNIST if it is here or can be fetched.",
        ),
    ] = "auto",
    shown: Annotated[int, typer.Option("--show", min=0, help="Show N images in the terminal.")] = 3,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture", help=f"Write a picture to this .png or .svg file (default: {PICTURE}; none with --json -)."
        ),
    ] = None,
    json_path: JsonOption = None,
) -> None:
    """Let a server read handwritten digits that it cannot see.

    The digits are encrypted here; a process without the secret key computes; its answers are decrypted here.
    """
    checked_device(device)
    model = find_model(model_name)
    samples = digits(source)
    index = np.arange(count) % len(samples.images)  # from the start again where there are fewer
    names = [str(digit) for digit in range(10)]
    pictures = Pictures(
        samples.images[index], samples.labels[index], (_SIDE, _SIDE), samples.source, samples.data, names
    )
    show_encrypted(model, pictures, Asked(model_name, device, threads, shown, picture, PICTURE, json_path))
