"""What of a tree is rendered by the real tools before it is read, and within which limits."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Final

from kvgate.errors import KvgateError
from kvgate.records import record

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS: Final = 30
MEMORY_BYTES: Final = 4 * 2**30
MAX_OUTPUT_BYTES: Final = 20_000_000
MAX_FILES: Final = 2_000
MAX_COPIED_BYTES: Final = 50_000_000


class RenderError(KvgateError):
    """Rendering was asked for and cannot be done at all: the tool is not installed."""


@record
class ChartValues:
    """One release of a chart: which charts it means, and the values files and names it is installed with.

    Attributes:
        path: folder of the chart, or a glob, relative to the root.
        values: values files over the chart's own, relative to the root, the last winning.
    """

    path: str
    values: tuple[str, ...] = ()
    release: str = "release-name"
    namespace: str = "default"


@record
class Rendering:
    """What is rendered.

    Attributes:
        charts: releases; a chart that none of them means is rendered once, with its own values.
        search_path: where programs are looked up (PATH), besides those that come with an extra.
    """

    helm: bool = False
    kustomize: bool = False
    charts: tuple[ChartValues, ...] = ()
    search_path: str = field(default="")


NOTHING: Final = Rendering()


@contextmanager
def copied(files: Mapping[str, bytes]) -> Iterator[Path]:
    """A folder of its own with some files, by their path; nothing else of the tree can be reached from there."""
    with TemporaryDirectory(prefix="kvgate-") as folder:
        root = Path(folder)
        for path, data in files.items():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        yield root


def files_below(root: Path, folder: str) -> dict[str, bytes] | str:
    """The regular files below a folder of a tree, by their path inside it; words where there are too many.

    Links are followed only within the tree.
    """
    top = (root / folder).resolve()
    boundary = root.resolve()
    if not top.is_relative_to(boundary) or not top.is_dir():
        return "its folder is not inside the tree"
    found: dict[str, bytes] = {}
    size = 0
    for path in sorted(top.rglob("*")):
        try:
            if not path.is_file() or not path.resolve().is_relative_to(boundary):
                continue
            size += path.stat().st_size
            if size > MAX_COPIED_BYTES or len(found) >= MAX_FILES:
                return "it holds more than is copied for a rendering"
            found[path.relative_to(top).as_posix()] = path.read_bytes()
        except OSError:
            continue
    return found


def run(words: Sequence[str], job: bytes, environment: Mapping[str, str], folder: Path) -> tuple[bytes, str | None]:
    """Run a program within the limits of time and output: what it prints, or why there is nothing."""
    with TemporaryFile() as output, TemporaryFile() as complaints:
        try:
            code = subprocess.run(  # noqa: S603 - the program was looked up, its words are ours
                list(words),
                input=job,
                stdout=output,
                stderr=complaints,
                env=dict(environment),
                cwd=folder,
                timeout=SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return b"", f"it took longer than {SECONDS} seconds"
        except OSError as error:
            return b"", str(error.strerror or error)
        if output.seek(0, 2) >= MAX_OUTPUT_BYTES:
            return b"", "it yields more text than is read"
        if code:
            complaints.seek(0)
            last = complaints.read(MAX_OUTPUT_BYTES).decode("utf-8", "replace").strip().splitlines()
            return b"", (last[-1][:300] if last else f"exit code {code}")
        output.seek(0)
        return output.read(), None


def closed_environment(home: Path) -> dict[str, str]:
    """An environment from which no cluster, no proxy and no program can be found."""
    nowhere = "http://127.0.0.1:9"
    return {
        "HOME": str(home),
        "PATH": "",
        "KUBECONFIG": str(home / "none"),
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "http_proxy": nowhere,
        "https_proxy": nowhere,
        "LANG": "C.UTF-8",
    }


def find_program(name: str, search_path: str) -> str | None:
    """Where a program is, by a search path; no path finds nothing."""
    return shutil.which(name, path=search_path) if search_path else None
