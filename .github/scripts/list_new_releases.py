"""Print the vLLM releases on PyPI that are newer than the newest one kvgate knows, separated by blanks.

python .github/scripts/list_new_releases.py
"""

from __future__ import annotations

import json
import sys
import urllib.request

from packaging.version import InvalidVersion, Version

from kvgate.engine.releases import newest_release

INDEX = "https://pypi.org/pypi/vllm/json"


def new_releases(data: dict[str, object], known: str) -> list[str]:
    """Final and post releases with a wheel, oldest first."""
    found = []
    files = data.get("releases")
    for name, uploads in files.items() if isinstance(files, dict) else ():
        try:
            version = Version(name)
        except InvalidVersion:
            continue
        wheels = [
            upload for upload in uploads if upload.get("packagetype") == "bdist_wheel" and not upload.get("yanked")
        ]
        if wheels and not version.is_prerelease and version > Version(known):
            found.append(version)
    return [str(version) for version in sorted(found)]


if __name__ == "__main__":
    with urllib.request.urlopen(INDEX, timeout=60) as answer:
        print(" ".join(new_releases(json.load(answer), newest_release())))
    sys.exit(0)
