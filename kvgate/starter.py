"""``kvgate init``: the files that a repository begins with, from what is found in it.

Nothing that is there is overwritten. What only a person can know stands as a blank with the reason, as a comment, so
that the files work before anybody fills them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvgate.config import NAMES
from kvgate.errors import KvgateError
from kvgate.records import record
from kvgate.report.escape import visible

if TYPE_CHECKING:
    from kvgate.plan import ServingPlan

MAX_UNITS: Final = 200
WORKFLOW: Final = ".github/workflows/kvgate.yml"
HOOKS: Final = ".pre-commit-config.yaml"
GITLAB: Final = ".gitlab-ci.yml"

# Releases of the actions that the workflow uses, each by the commit of its tag.
CHECKOUT: Final = "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1"
SETUP_PYTHON: Final = "actions/setup-python@5fda3b95a4ea91299a34e894583c3862153e4b97 # v7.0.0"
UPLOAD_SARIF: Final = "github/codeql-action/upload-sarif@8aad20d150bbac5944a9f9d289da16a4b0d87c1e # v4.36.2"


class StarterError(KvgateError):
    """A file cannot be written."""


@record
class Proposal:
    """A file that is to be written, or a text that a person has to put into a file that is there.

    Attributes:
        path: relative to the root.
        present: the file is there, and stays as it is.
    """

    path: str
    text: str
    present: bool


def propose(plans: Sequence[ServingPlan], root: Path, version: str) -> list[Proposal]:
    """What a repository needs, by what is found in it.

    Args:
        plans: the units, resolved without a kvgate.yaml.
        version: kvgate's own.
    """
    existing = next((name for name in NAMES if (root / name).exists()), None)
    found = [Proposal(existing or NAMES[0], configuration(plans), existing is not None)]
    gitlab, github = (root / GITLAB).exists(), (root / ".github").is_dir()
    if github or not gitlab:
        found.append(Proposal(WORKFLOW, workflow(version), (root / WORKFLOW).exists()))
    if gitlab:
        found.append(Proposal(GITLAB, gitlab_job(version), True))
    found.append(Proposal(HOOKS, hooks(version), (root / HOOKS).exists()))
    return found


def write(proposals: Sequence[Proposal], root: Path) -> None:
    """Write the files that are not there.

    Raises:
        StarterError: a folder leads out of the root, or a file cannot be written.
    """
    for proposal in proposals:
        if proposal.present:
            continue
        place = root / proposal.path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if not Path(os.path.realpath(place.parent)).is_relative_to(os.path.realpath(root)):
                raise StarterError(f"{proposal.path}: a link that leads out of the repository")
            with place.open("x", encoding="utf-8", newline="\n") as file:
                file.write(proposal.text)
        except OSError as error:
            raise StarterError(f"{proposal.path}: cannot be written: {error.strerror or error}") from None


def show(proposals: Sequence[Proposal]) -> str:
    """The new files as a unified diff, and what a person has to add to files that are there."""
    import difflib

    parts = []
    for proposal in proposals:
        lines = proposal.text.splitlines(keepends=True)
        if not proposal.present:
            parts.append("".join(difflib.unified_diff([], lines, "/dev/null", f"b/{proposal.path}")))
        elif proposal.path.startswith("kvgate") or proposal.path.startswith(".kvgate") or proposal.path == WORKFLOW:
            parts.append(f"# {proposal.path} is there and stays as it is.\n")
        else:
            added = "".join(f"    {line}" for line in lines)
            parts.append(f"# {proposal.path} is there and stays as it is. To be added to it:\n{added}")
    return "\n".join(parts)


def configuration(plans: Sequence[ServingPlan]) -> str:
    """A kvgate.yaml for the units, with a commented workload each."""
    return "\n".join(_configuration(plans)) + "\n"


def _configuration(plans: Sequence[ServingPlan]) -> Iterator[str]:
    yield "# What the manifests do not say. `kvgate check` reads this file; lines with a # are yours to fill."
    yield "version: 1"
    yield ""
    if any(plan.version_basis == "assumed" for plan in plans):
        yield "# Some images do not say their vLLM release:"
        yield '# vllm_version: "0.19.1"'
        yield ""
    paths = sorted({reference for plan in plans if (reference := plan.model_reference) and plan.model is None})
    if paths:
        yield "# Models that are known neither here nor in kvgate: what each stands for (a Hub id or a folder of this"
        yield "# repository); then `kvgate lock --online` keeps their configurations here."
        yield "# models:"
        yield from (f"#   {_quoted(path)}: organisation/name" for path in paths)
        yield ""
    if plans:
        yield "units:"
    for plan in plans[:MAX_UNITS]:
        yield from _unit(plan)
    if len(plans) > MAX_UNITS:
        yield f"  # and {len(plans) - MAX_UNITS} more"
    if plans:
        yield ""
    yield "# What `kvgate diff` lets through: no server may hold fewer requests than before."
    yield "gate: {max_capacity_drop: 0%, on_unknown: fail}"


def _unit(plan: ServingPlan) -> Iterator[str]:
    unit = plan.unit
    known = [visible(plan.model_reference or "no model"), f"vLLM {plan.version}"]
    known += [plan.gpu.name] if plan.gpu is not None else []
    yield f"  # {visible(unit.path)}:{unit.span.line}: {', '.join(known)}"
    yield f"  - match: {{id: {_quoted(unit.id)}}}"
    if plan.gpu is None:
        yield f"    # gpu: NVIDIA L4  # {visible(plan.gpu_reason or 'no file names the GPU')}"
    if plan.gpu_count is None and unit.kind == "compose":
        yield "    # gpu_count: 1"
    if plan.version_basis == "assumed":
        yield '    # vllm_version: "0.19.1"  # the image does not say it'
    if plan.workload is None:
        yield "    # The load over all replicas, requests at the 95th percentile:"
        yield "    # workload:"
        yield "    #   peak_concurrency: 20"
        yield "    #   prompt_tokens: {p95: 7500}"
        yield "    #   output_tokens: {p95: 1000}"
        yield "    #   shared_prefix_tokens: 0"


def _quoted(text: str) -> str:
    """A text as a YAML scalar in double quotes, whatever stands in it."""
    return json.dumps(visible(text), ensure_ascii=False)


def workflow(version: str) -> str:
    """A workflow for pull requests and the default branch."""
    return f"""\
name: kvgate

on:
  pull_request:
    # a maintainer's label kvgate/accept-capacity-drop accepts what the gate stops
    types: [opened, synchronize, reopened, labeled, unlabeled]
  merge_group:
  push:
    branches: [main]

permissions: {{}}

concurrency:
  group: kvgate-${{{{ github.workflow }}}}-${{{{ github.ref }}}}
  cancel-in-progress: true

jobs:
  capacity:
    runs-on: ubuntu-latest
    permissions:
      contents: read
      security-events: write # to upload SARIF
    steps:
      - uses: {CHECKOUT}
        with:
          fetch-depth: 0 # the base is compared with
          persist-credentials: false
      - uses: {SETUP_PYTHON}
        with:
          python-version: "3.13"
      - run: 'python -m pip install --only-binary=:all: kvgate=={version}'
      - name: What this change does to the capacity
        if: github.event_name != 'push'
        run: kvgate diff --format github --format markdown --output "$GITHUB_STEP_SUMMARY"
      - name: All findings
        if: ${{{{ !cancelled() }}}}
        run: kvgate check --fail-on never --format sarif --output kvgate.sarif
      - uses: {UPLOAD_SARIF}
        # a fork's token cannot upload
        if: >-
          ${{{{ !cancelled() && (github.event_name != 'pull_request' ||
          github.event.pull_request.head.repo.full_name == github.repository) }}}}
        with:
          sarif_file: kvgate.sarif
          category: kvgate
"""


def gitlab_job(version: str) -> str:
    """A job for GitLab's merge requests."""
    return f"""\
kvgate:
  image: python:3.13-slim
  rules:
    - if: $CI_PIPELINE_SOURCE == "merge_request_event"
  variables:
    GIT_DEPTH: "0"  # the base is compared with
  before_script:
    - apt-get update && apt-get install --yes --no-install-recommends git
    - git config --global --add safe.directory "$CI_PROJECT_DIR"
    - 'python -m pip install --only-binary=:all: kvgate=={version}'
  script:
    - kvgate diff --format text --format gitlab --output gl-code-quality-report.json
  artifacts:
    when: always
    reports:
      codequality: gl-code-quality-report.json
"""


def hooks(version: str) -> str:
    """A pre-commit configuration."""
    return f"""\
repos:
  - repo: local
    hooks:
      - id: kvgate
        name: kvgate
        entry: kvgate check
        language: python
        additional_dependencies: [kvgate=={version}]
        pass_filenames: false
        require_serial: true
"""
