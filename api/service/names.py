"""Valid names of models and versions: in URLs, in the repository's folder and in tenants' terms."""

from __future__ import annotations

from typing import Final

NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
VERSION_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$"
