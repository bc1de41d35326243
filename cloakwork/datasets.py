"""Data sets of the zoo's models: tables, MNIST, CIFAR-10."""

from __future__ import annotations

from cloakwork.training.cifar10_data import load_cifar10
from cloakwork.training.mnist_data import load_mnist
from cloakwork.training.tabular_data import load_tabular

__all__ = ["load_cifar10", "load_mnist", "load_tabular"]
