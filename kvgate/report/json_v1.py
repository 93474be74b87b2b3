"""The JSON of a check, ``kvgate.report/1`` (schema: ``schemas/kvgate.report-1.json``)."""

from __future__ import annotations

import json
import math
from typing import Any

from kvgate.findings.report import Report


def render_json(report: Report) -> str:
    """The whole report; keys in the order of the contract, no NaN or infinity."""
    return json.dumps(finite(report.as_dict()), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """JSON knows no infinity (a pool without a limit) and no NaN: null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
