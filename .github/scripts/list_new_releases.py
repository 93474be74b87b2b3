"""Print the vLLM releases that are newer than the newest one kvgate knows, separated by blanks.

python .github/scripts/list_new_releases.py
"""

from __future__ import annotations

import re
import subprocess
import sys

from packaging.version import InvalidVersion, Version

from kvgate.engine.releases import newest_release

_VERSIONS = re.compile(r"Available versions:(?P<names>.*)")


def new_releases(listing: str, known: str) -> list[str]:
    """Final and post releases of a listing by ``pip index versions``, oldest first."""
    match = _VERSIONS.search(listing)
    found = []
    for name in match["names"].split(",") if match else ():
        try:
            version = Version(name.strip())
        except InvalidVersion:
            continue
        if not version.is_prerelease and version > Version(known):
            found.append(version)
    return [str(version) for version in sorted(found)]


if __name__ == "__main__":
    command = [sys.executable, "-m", "pip", "index", "versions", "vllm"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    print(" ".join(new_releases(answer.stdout, newest_release())))
