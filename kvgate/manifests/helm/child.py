"""Renders one chart with Helm's own engine. Runs as a program of its own, within limits of memory and time.

It reads a job from standard input and writes one JSON object; it imports nothing of kvgate, and asks no network: charts
are loaded from a folder, dependencies from its ``charts/``, and ``lookup`` finds nothing.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def _limit(memory_bytes: int, seconds: int, output_bytes: int) -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limits; the parent's clock remains
        return
    limits = (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, output_bytes),
        (resource.RLIMIT_CORE, 0),
    )
    for kind, value in limits:
        try:
            _, hard = resource.getrlimit(kind)
            limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (limit, limit))
        except (ValueError, OSError):
            continue


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """What Helm makes of several values files: mappings key by key, everything else replaced."""
    result = dict(base)
    for key, value in over.items():
        inner = result.get(key)
        result[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return result


def main() -> None:
    job = json.load(sys.stdin)
    _limit(job["memory_bytes"], job["seconds"], job["output_bytes"])
    try:
        import helm_python
    except ImportError as error:
        json.dump({"missing": str(error)}, sys.stdout)
        return
    try:
        values: dict[str, Any] = {}
        for text in job["values"]:
            values = _merged(values, helm_python.values_from_yaml(text) or {})
        with helm_python.Chart.load(job["chart"]) as chart:
            name, metadata = chart.name, chart.metadata
            manifests = chart.render(values, name=job["name"], namespace=job["namespace"])
            loaded = [str(item.get("name")) for item in chart.dependencies]
    except helm_python.HelmError as error:
        json.dump({"error": str(error)}, sys.stdout)
        return
    wanted = [str(item.get("name")) for item in metadata.get("dependencies") or []]
    absent = [item for item in wanted if item not in loaded]
    json.dump({"name": name, "manifests": manifests, "absent": absent}, sys.stdout)


if __name__ == "__main__":
    main()
