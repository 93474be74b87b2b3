"""What language a file is written in, by its name and its first lines. Cheap: asked of every file of a tree."""

from __future__ import annotations

import re
from typing import Final, Literal

from kvgate.patterns import regex

Format = Literal[
    "yaml",
    "shell",
    "dockerfile",
    "systemd",
    "batch",
    "powershell",
    "make",
    "python",
    "hcl",
    "notebook",
    "procfile",
    "toml",
    "apptainer",
]

_BY_SUFFIX: Final[dict[str, Format]] = {
    ".yaml": "yaml", ".yml": "yaml", ".json": "yaml", ".jsonc": "yaml",
    ".toml": "toml",
    ".sh": "shell", ".bash": "shell", ".zsh": "shell", ".ksh": "shell", ".command": "shell", ".sbatch": "shell",
    ".slurm": "shell",
    ".dockerfile": "dockerfile", ".containerfile": "dockerfile",
    ".service": "systemd", ".container": "systemd",
    ".bat": "batch", ".cmd": "batch",
    ".ps1": "powershell",
    ".def": "apptainer",
    ".mk": "make", ".just": "make",
    ".py": "python",
    ".ipynb": "notebook",
    ".hcl": "hcl", ".nomad": "hcl", ".tf": "hcl",
}  # fmt: skip
_BY_NAME: Final[dict[str, Format]] = {
    "dockerfile": "dockerfile", "containerfile": "dockerfile",
    "makefile": "make", "gnumakefile": "make", "justfile": "make", ".justfile": "make",
    "kustomization": "yaml",
    "procfile": "procfile",
    "singularity": "apptainer",
    "supervisord.conf": "systemd", "supervisor.conf": "systemd",
}  # fmt: skip

# Names that others put something of their own behind, or before (``Dockerfile.gpu``, ``gpu-Makefile``).
_STEMS: Final = frozenset({"dockerfile", "containerfile", "makefile", "singularity"})

#: Endings of files that readers take.
FORMAT_SUFFIXES: Final = frozenset(_BY_SUFFIX)

#: Endings of templates of a file, behind the ending that says what it is.
_TEMPLATE_SUFFIXES: Final = frozenset(
    {".dist", ".envsubst", ".erb", ".example", ".in", ".j2", ".jinja", ".jinja2", ".sample", ".template", ".tftpl",
     ".tmpl", ".tpl"}
)  # fmt: skip

_SHELL_LINE: Final = regex(r"#!\s*\S*?(?:env\s+(?:-\S+\s+)*)?(?:/\S*/)?(?:ba|z|k|da|a)?sh\b")
_PYTHON_LINE: Final = regex(r"#!.*\bpython[0-9.]*\b")


def format_of_name(path: str) -> Format | None:
    """The format that a path tells; None for others, and for names without any ending."""
    name = path.rpartition("/")[2].lower()
    while (dot := name.rfind(".")) > 0:
        suffix = name[dot:]
        found = _BY_SUFFIX.get(suffix)
        if found is not None:
            return found
        if suffix not in _TEMPLATE_SUFFIXES:
            break
        name = name[:dot]
    parts = name.partition(".")[0].replace("_", "-").split("-")
    stem = parts[0] if parts[0] in _STEMS else parts[-1]
    return _BY_NAME.get(name) or (_BY_NAME.get(stem) if stem in _STEMS else None)


def is_template_name(path: str) -> bool:
    """Whether a file's name says that it is a template of another program: ``compose.yml.j2``, ``x.template.yaml``."""
    *before, last = (f".{part}" for part in path.rpartition("/")[2].lower().split("."))
    return last in _TEMPLATE_SUFFIXES or (last in _BY_SUFFIX and not _TEMPLATE_SUFFIXES.isdisjoint(before[1:]))


def format_of_text(text: str) -> Format | None:
    """The format that the beginning of a text tells (a shebang, a unit's section, a Dockerfile's first instruction)."""
    head = text[:4000]
    if head.startswith("#!"):
        if _SHELL_LINE.match(head):
            return "shell"
        return "python" if _PYTHON_LINE.match(head) else None
    if re.search(r"(?m)^\[(?:Unit|Service|Container|program:[^\]\n]+)\]\s*$", head):
        return "systemd"
    if re.match(r"(?:[ \t]*(?:#[^\n]*|ARG[ \t][^\n]*)?\r?\n)*[ \t]*FROM[ \t]+\S+", head):
        return "dockerfile"
    if re.match(r"@echo off\b|(?:rem|::)\s", head, re.IGNORECASE):
        return "batch"
    if re.search(r"(?m)^(?:from vllm\b.*\bimport|import vllm\b|import \w+$|from [\w.]+ import )", head):
        return "python"
    return None


def format_of(path: str, text: str) -> Format:
    """The format of a file; one that nothing tells is taken for YAML, or for shell where that cannot be."""
    found = format_of_name(path)
    if found is not None:
        return found
    found = format_of_text(text)
    if found is not None:
        return found
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    plainly_yaml = re.match(r"(?:---|[\[{]|-\s|[\w.\"'/-]+:(?:\s|$))", first) is not None
    a_word = "\n" not in text.strip() and " " not in text.strip()
    return "yaml" if plainly_yaml or a_word else "shell"
