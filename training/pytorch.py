"""`import torch` with an error that says what to install. Every module here that needs PyTorch takes it from this one."""

from __future__ import annotations

try:
    import torch
except ImportError as error:
    raise ImportError("training needs PyTorch, which is not installed: pip install 'cloakwork[train]'") from error

__all__ = ["torch"]
