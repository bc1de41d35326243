"""`import torch` with an error that says what to install. Every module here that needs PyTorch takes it from this one."""

from __future__ import annotations

from cloakwork.fhe_core.errors import how_to_install

try:
    import torch
except ImportError as error:
    raise ImportError(f"training needs PyTorch, which is not installed; {how_to_install('train')}") from error

Tensor = torch.Tensor
functional = torch.nn.functional

__all__ = ["Tensor", "functional", "torch"]
