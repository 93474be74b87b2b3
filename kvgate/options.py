"""What the commands that read a tree are asked alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from kvgate.records import record


@record
class RunOptions:
    """What a command was asked for beyond the paths, whatever it does with what it reads.

    Attributes:
        config: the kvgate.yaml to use; None finds one.
        baseline: file of accepted findings; None leaves it to kvgate.yaml.
        gpu, vllm_version: win over what the files say of any unit.
        online: whether the Hub may be asked; None leaves it to kvgate.yaml.
        select, ignore: rule ids and families.
        preview: rules in preview too.
        profile: None leaves it to kvgate.yaml.
        render: what is rendered by Helm or kustomize, besides what kvgate.yaml asks for.
        environ: for git, for the Hub's cache and token, and where programs are looked up.
    """

    config: Path | None = None
    baseline: Path | None = None
    gpu: str | None = None
    vllm_version: str | None = None
    online: bool | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    preview: bool = False
    profile: str | None = None
    render: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
