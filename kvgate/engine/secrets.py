"""Names that carry secrets, and what stands for their values."""

from __future__ import annotations

import re
from typing import Any, Final

MASK: Final = "***"

_SECRET: Final = re.compile(
    r"(?:^|_)(?:(?:api|access|auth|private|secret)_?keys?|key|tokens?_?secret|token|secrets?|password|passwd|passphrase)$"
    r"|(?:^|_)(?:secret|password)_",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether a flag, variable or JSON key names a secret: ``api_key``, ``HF_TOKEN``, ``ssl_keyfile_password``."""
    return _SECRET.search(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_")) is not None


def mask_secrets(value: Any) -> Any:
    """A JSON value with the texts under secret keys replaced, at any depth."""
    if isinstance(value, dict):
        return {
            key: MASK if isinstance(item, str) and item and is_secret(str(key)) else mask_secrets(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [mask_secrets(item) for item in value]
    return value
