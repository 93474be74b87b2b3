"""Texts as tokens: by the model's tokenizer where it is at hand, else as bytes with the ratio stated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kvgate.prompts.part import BYTES_PER_TOKEN
from kvgate.records import record


@record
class Counting:
    """How texts are counted.

    Attributes:
        encode: a text as tokens, or as UTF-8 bytes.
        per_token: how many of ``encode``'s elements make one token.
        basis: for people: ``tokens of tokenizer.json``, ``4 bytes a token``.
        exact: whether it is the model's tokenizer.
    """

    encode: Callable[[str], Sequence[int] | bytes]
    per_token: int
    basis: str
    exact: bool

    def tokens(self, elements: int) -> int:
        """Elements of :attr:`encode` as tokens, rounded down."""
        return elements // self.per_token


def by_bytes() -> Counting:
    """Four bytes a token: see :data:`kvgate.prompts.part.BYTES_PER_TOKEN`."""
    return Counting(lambda text: text.encode(), BYTES_PER_TOKEN, f"{BYTES_PER_TOKEN} bytes a token", exact=False)


def tokenizer_folder(reference: str | None, root: Path, models: Mapping[str, str]) -> Path | None:
    """The folder of the tree with a model's tokenizer: the one that ``models:`` of kvgate.yaml names, or its lock's."""
    if reference is None:
        return None
    names = (models.get(reference, reference), f".kvgate/models/{reference.replace('/', '--')}")
    for name in names:
        folder = root / name
        if not Path(name).is_absolute() and (folder / "tokenizer.json").is_file():
            return folder
    return None


def load_tokenizer(folder: Path | None) -> Counting:
    """The tokenizer of a model's folder; bytes where there is none, or the package ``tokenizers`` is not installed."""
    file = folder / "tokenizer.json" if folder is not None else None
    if file is None or not file.is_file():
        return by_bytes()
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return by_bytes()
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception:  # a tokenizer of another version raises a bare Exception
        return by_bytes()

    def encode(text: str) -> Sequence[int]:
        ids: Sequence[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return Counting(encode, 1, f"tokens of {file.name}", exact=True)
