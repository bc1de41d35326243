"""The data sets of images that recipes train with, by name: "mnist" as lines of 784, "cifar10" as [3, 32, 32]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cloakwork.training.cifar10_data import load_cifar10
from cloakwork.training.mnist_data import Split, load_mnist

Images = NDArray[np.float32] | NDArray[np.float64]
Labels = NDArray[np.int64]


def load_images(data: str, part: Split) -> tuple[Images, Labels]:
    """Returns images in [0, 1] and labels [count]; errors as `load_mnist` and `load_cifar10`."""
    return load_cifar10(part) if data == "cifar10" else load_mnist(part)


def calibration_images(data: str, count: int) -> Images:
    """Returns training images: the first of MNIST, whose order is random, and of CIFAR-10 as many of each class."""
    images, _ = load_images(data, "train")
    return images[:count] if data == "mnist" else spread(images, count)


def spread(images: Images, count: int) -> Images:
    """Selects at most `count` of them, evenly over all."""
    return images[:: max(1, -(-len(images) // count))]
