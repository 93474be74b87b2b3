"""Write kvgate/engine/data/log_lines.json: in which line of which file each vLLM release prints its memory figures.

A log line of vLLM names the source line that printed it. Where a log does not say the version, these places give the
release away.

    python .github/scripts/update_log_lines.py SOURCES

SOURCES holds one folder per release, named after it, with the Python files of its wheel.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

from packaging.version import Version

OUTPUT = Path(__file__).parents[2] / "kvgate/engine/data/log_lines.json"
MESSAGES = (
    "KV cache size:",
    "Available KV cache memory",
    "Graph capturing finished",
    "Model loading took",
    "Loading model weights took",
    "blocks: %d",
    "Maximum concurrency for",
    "Initializing a V1 LLM engine",
    "Initializing an LLM engine",
    "Initializing a V0 LLM engine",
    "init engine (profile",
)


def places(release: Path) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for file in release.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if not any(message in text for message in (*MESSAGES, "reserved for KV Cache")):
            continue
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            if node.func.attr not in ("info", "info_once"):
                continue
            argument = node.args[0]
            words = argument.value if isinstance(argument, ast.Constant) else ""
            # V0 puts its memory profile together before it logs it
            profile = isinstance(argument, ast.Name) and argument.id == "msg" and file.name == "worker.py"
            if profile or (isinstance(words, str) and any(message in words for message in MESSAGES)):
                found.add((file.name, node.lineno))
    return found


def main() -> None:
    sources = Path(sys.argv[1])
    table: dict[str, dict[int, list[str]]] = {}
    for release in sorted((path for path in sources.iterdir() if path.is_dir()), key=lambda path: Version(path.name)):
        for name, line in places(release):
            table.setdefault(name, {}).setdefault(line, []).append(release.name)
    rows = [
        f"  {json.dumps(name)}: {json.dumps({str(line): lines[line] for line in sorted(lines)})}"
        for name, lines in sorted(table.items())
    ]
    OUTPUT.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
