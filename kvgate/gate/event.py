"""What the CI system says of the change that is being checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kvgate.records import record

MAX_EVENT_BYTES: Final = 64_000_000


@record
class Event:
    """An event of GitHub Actions (or of GitLab CI, as far as it is needed).

    Attributes:
        name: ``pull_request``, ``merge_group``, ``push``, ``merge_request`` (GitLab), ...
        base: commit that the event itself names as base; None where it names none.
        head: commit that it names as head of the change.
        number: of the pull request.
        default_branch: of the repository.
        labels: of the pull request. Only people with triage rights on the repository set labels.
    """

    name: str
    base: str | None = None
    head: str | None = None
    number: int | None = None
    default_branch: str | None = None
    labels: frozenset[str] = frozenset()


def read_event(environ: Mapping[str, str], payload: str | None) -> Event | None:
    """The event of this run, None outside of CI.

    Args:
        payload: contents of the file that ``GITHUB_EVENT_PATH`` names; what is no JSON object counts as none.
    """
    name = environ.get("GITHUB_EVENT_NAME")
    if name:
        return _github(name, _parsed(payload))
    base = environ.get("CI_MERGE_REQUEST_DIFF_BASE_SHA")
    if base:
        labels = environ.get("CI_MERGE_REQUEST_LABELS", "")
        return Event(
            "merge_request",
            base=base,
            head=environ.get("CI_COMMIT_SHA"),
            number=_whole(environ.get("CI_MERGE_REQUEST_IID")),
            default_branch=environ.get("CI_DEFAULT_BRANCH"),
            labels=frozenset(label.strip() for label in labels.split(",") if label.strip()),
        )
    return None


def _parsed(payload: str | None) -> Mapping[str, Any]:
    try:
        parsed = json.loads(payload) if payload else {}
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _github(name: str, payload: Mapping[str, Any]) -> Event:
    branch = _text(payload, "repository", "default_branch")
    if name in ("pull_request", "pull_request_target"):
        labels = _at(payload, "pull_request", "labels")
        names = [_text(label, "name") for label in labels] if isinstance(labels, list) else []
        return Event(
            name,
            base=_text(payload, "pull_request", "base", "sha"),
            head=_text(payload, "pull_request", "head", "sha"),
            number=_whole(payload.get("number")),
            default_branch=branch,
            labels=frozenset(label for label in names if label),
        )
    if name == "merge_group":
        return Event(
            name,
            base=_text(payload, "merge_group", "base_sha"),
            head=_text(payload, "merge_group", "head_sha"),
            default_branch=branch,
        )
    if name == "push":
        before = _text(payload, "before")
        return Event(
            name,
            base=before if before and before.strip("0") else None,
            head=_text(payload, "after"),
            default_branch=branch,
        )
    return Event(name, default_branch=branch)


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _text(value: Any, *keys: str) -> str | None:
    found = _at(value, *keys)
    return found if isinstance(found, str) and found else None


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 12 else None
