"""Time ``kvgate prompts`` on a tree of 2,000 Python files, next to ``ruff check`` on the same files.

    python tests/benchmarks/prompts_speed.py [COUNT]

The files are those of the running interpreter's library and its packages, in the order of their paths, and the examples
of ``tests/prompts`` are put among them: code that mostly has nothing to do with prompts, as a project's is.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "prompts"


def sources() -> Iterator[tuple[Path, Path]]:
    """Python files with their paths in the tree."""
    for folder in ("bad", "good"):
        for path in sorted((EXAMPLES / folder).glob("*.py")):
            yield path, Path("app") / folder / path.name
    for name in ("stdlib", "purelib"):
        root = Path(sysconfig.get_paths()[name])
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(root)
            if "site-packages" not in inside.parts and "lib2to3" not in inside.parts:
                yield path, Path(name) / inside


def timed(command: list[str], folder: Path) -> tuple[float, int]:
    """Seconds of the faster of two runs, and the exit code."""
    best, code = float("inf"), 0
    for _ in range(2):
        begin = time.perf_counter()
        code = subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode
        best = min(best, time.perf_counter() - begin)
    return best, code


def main(count: int = 2_000) -> int:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        taken = size = 0
        for path, place in sources():
            target = root / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            taken, size = taken + 1, size + path.stat().st_size
            if taken == count:
                break
        scripts = Path(sys.executable).parent
        ours, code = timed([str(scripts / "kvgate"), "prompts", "."], root)
        theirs, _ = timed([str(scripts / "ruff"), "check", "--isolated", "--no-cache", "-q", "."], root)
        print(f"{taken:,} files, {size / 1e6:.1f} MB")
        print(f"kvgate prompts {ours:6.2f} s (exit code {code})")
        print(f"ruff check     {theirs:6.2f} s")
        return 0 if code in (0, 1) else 1


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:2])))
