"""Names that carry secrets, and what stands for their values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from kvgate.patterns import regex

MASK: Final = "***"

_SECRET: Final = regex(
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


# A secret that is a common short word would mask half of a report.
MIN_SECRET_LENGTH: Final = 6

_FLAG: Final = regex(r"--?(?P<name>[A-Za-z][\w-]*)(?:=(?P<value>.+))?", re.DOTALL)
_MEMBER: Final = regex(r"""\\?["'](?P<name>[\w.-]+)\\?["']\s*:\s*\\?["'](?P<value>[^"'\\]+)""")
# A quote ends an address: what follows in {"endpoint":"tcp://*:5557","topic":"kv@pod"} is no password.
_USER: Final = regex(r"://(?P<user>[^\s/@:\"]*):(?P<value>[^\s/@\"]+)@")
_BEARER: Final = regex(r"\b(?:Bearer|Basic)\s+(?P<value>[\w.~+/=-]{6,})")
_SECRET_FLAGS: Final = ("api-key", "hf-token", "ssl-keyfile-password")
# Flags of their own that one of those begins with: the path of a key says nothing of it.
_PLAIN_FLAGS: Final = frozenset({"ssl-keyfile"})


def find_secrets(words: Iterable[str], variables: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The secret values that a command line and its environment hold, so that nothing prints them.

    Args:
        words: of the command line, as written.
        variables: name and value.

    Values after flags and under JSON keys that name a secret (abbreviated flags too), of variables that do, passwords
    in addresses, and bearer tokens. Shorter than six characters are left: they would be found everywhere.
    """
    found: set[str] = set()
    texts: list[str] = []
    after_secret = False
    for word in words:
        texts.append(word)
        flag = _FLAG.fullmatch(word)
        if after_secret and not flag:
            found.add(word)
        after_secret = False
        if flag and _names_secret(flag["name"]):
            if flag["value"]:
                found.add(flag["value"])
            else:
                after_secret = True
    for name, value in variables:
        texts.append(value)
        if is_secret(name) or re.search(r"(?:^|_)(?:PAT|CREDENTIALS?|AUTH|AUTHORIZATION)$", name, re.IGNORECASE):
            found.add(value.removeprefix("Bearer ").strip())
    for text in texts:
        found.update(match["value"] for match in _MEMBER.finditer(text) if is_secret(match["name"]))
        found.update(match["value"] for match in _USER.finditer(text))
        found.update(match["value"] for match in _BEARER.finditer(text))
    return frozenset(value for value in found if len(value) >= MIN_SECRET_LENGTH and not value.startswith("$"))


def _names_secret(flag: str) -> bool:
    name = flag.replace("_", "-")
    abbreviated = len(name) >= 5 and any(full.startswith(name) for full in _SECRET_FLAGS)
    return is_secret(flag) or (abbreviated and name not in _PLAIN_FLAGS)


def redact(text: str, secrets: Iterable[str]) -> str:
    """A text without the secrets in it, the longest first."""
    for secret in sorted(secrets, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, MASK)
    return text
