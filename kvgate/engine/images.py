"""Container image references -> vLLM version, and how far the name can be trusted."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, Literal

from packaging.version import InvalidVersion, Version

from kvgate.engine.releases import at_least
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.tables import load_table

Backend = Literal["cuda", "rocm", "cpu", "tpu", "xpu", "hpu"]

_HOST: Final = regex(r"[A-Za-z0-9.-]+(?::\d+)?")
_SCHEME: Final = regex(r"(?:docker|oci|docker-image)://|docker:(?=[^/]*/)")
_VERSION: Final = regex(r"v?(\d+\.\d+\.\d+(?:\.\d+)?(?:[._-]?(?:post|rc|a|b|dev)\d+)*)(?![\d.])", re.IGNORECASE)
_UNRESOLVED: Final = regex(r"[\s${}<>()]")
_UNRESOLVED_TAG: Final = regex(r"([^\s${}<>()@]+)[:@][^/]*[${}<>()].*", re.DOTALL)
_ROLLING: Final = frozenset(
    (
        "latest",
        "nightly",
        "main",
        "master",
        "dev",
        "develop",
        "edge",
        "stable",
        "rolling",
        "preview",
        "head",
        "canary",
        "auto",
    )
)
_COMMIT: Final = regex(r"[0-9a-f]{7,40}")
_BACKENDS: Final = (
    (regex(r"rocm[\d.]*|hip"), "rocm"),
    (regex(r"cpu"), "cpu"),
    (regex(r"tpu"), "tpu"),
    (regex(r"xpu|ipex"), "xpu"),
    (regex(r"hpu|gaudi\d*"), "hpu"),
    (regex(r"cuda[\d.]*|cu\d{3}|gpu"), "cuda"),
)
# Images about vLLM that are no engine.
_COMPANIONS: Final = regex(
    r"router|proxy|exporter|bench|client|operator|controller|dashboard|gateway|scheduler|sim(?:ulator)?\b|epp|webui|frontend"
)


@record
class Image:
    """A container image as a manifest names it.

    Attributes:
        text: the reference as given.
        registry: its host, None where there is none (Docker Hub) or the reference is not resolved.
        repository: the path without registry, tag and digest.
        tag, digest: as given (the digest with its algorithm), None where absent.
        vllm_version: the vLLM version that the tag names, None where it names none.
        official: the image is upstream's own, or ships its release unchanged. False: someone else's build.
        version_declared: the publisher says which version the tag holds. False: the tag looks like one, a hint only.
        pinned: the reference names the same image tomorrow: a digest, or a tag that nobody moves.
        mutable_reason: why it is not pinned, None where it is.
        backend: what the image runs on, None where the name does not say.
        is_vllm: the image is a vLLM engine by its name.
    """

    text: str
    registry: str | None
    repository: str
    tag: str | None
    digest: str | None
    vllm_version: str | None
    official: bool
    version_declared: bool
    pinned: bool
    mutable_reason: str | None
    backend: Backend | None
    is_vllm: bool

    @property
    def entrypoint(self) -> tuple[str, ...] | None:
        """The entrypoint's words, for images that upstream publishes; None where unknown.

        vLLM's Dockerfile of 0.11.0 starts the API server module, and so did the image of 0.13.0 (vllm-project/vllm
        pull request 32292); images from 0.19 on are seen to start ``vllm serve``. Both take the model as ``--model``,
        and only the second one as its first word.
        """
        entry = _published(self.repository)
        if entry is None or not self.official:
            return None
        for row in entry["entrypoints"]:
            if row["since"] is None or at_least(self.vllm_version, row["since"]):
                return tuple(row["words"]) if row["words"] else None
        return None


def parse_image(text: str) -> Image:
    """Read a container image reference. Never raises; an unresolved repository is no vLLM image and not pinned."""
    shown = text.strip()
    name = _SCHEME.sub("", shown, count=1) if _SCHEME.match(shown) else shown
    unresolved_tag = _UNRESOLVED_TAG.fullmatch(name)
    if unresolved_tag is not None:
        name = unresolved_tag[1]
    if not name or _UNRESOLVED.search(name):
        return Image(text, None, name, None, None, None, False, False, False, "the image is not resolved", None, False)
    name, _, digest = name.partition("@")
    registry: str | None = None
    first, slash, rest = name.partition("/")
    if slash and (("." in first or ":" in first or first == "localhost") and _HOST.fullmatch(first)):
        registry, name = first, rest
    head, slash, last = name.rpartition("/")
    last, colon, tag = last.partition(":")
    repository = head + slash + last
    given_tag = tag if colon and tag else None
    reason = None if digest else _mutable_reason(given_tag)
    if unresolved_tag is not None:
        reason = "the tag is not resolved"
    entry = _published(repository if registry is None else f"{registry}/{repository}")
    version, declared = _version_of(entry, repository, given_tag)
    is_vllm = entry is not None or (
        ("vllm" in last.lower() or "vllm" in (given_tag or "").lower()) and not _COMPANIONS.search(last.lower())
    )
    return Image(
        text=text,
        registry=registry,
        repository=repository,
        tag=given_tag,
        digest=digest or None,
        vllm_version=version if is_vllm else None,
        official=bool(entry and entry["official"]),
        version_declared=declared,
        pinned=reason is None,
        mutable_reason=reason,
        backend=_backend_of(entry, repository, given_tag or "") if is_vllm else None,
        is_vllm=is_vllm,
    )


def release_named(text: str) -> str | None:
    """The vLLM version that a text gives, by itself (``v0.11.2``) or as an image reference; None where it is neither.

    Words behind an image reference are left aside.
    """
    words = text.split()
    if not words:
        return None
    try:
        Version(text)
    except InvalidVersion:
        return parse_image(words[0]).vllm_version
    return text.strip().removeprefix("v")


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], dict[str, Any]], ...]:
    return tuple((regex(entry["repository"]), entry) for entry in load_table("engine/images")["images"])


def _published(name: str) -> dict[str, Any] | None:
    for pattern, entry in _patterns():
        if pattern.search(name):
            return entry
    return None


def _version_of(entry: dict[str, Any] | None, repository: str, tag: str | None) -> tuple[str | None, bool]:
    """The version that a tag names, and whether that is the publisher's declaration."""
    if tag is None:
        return None, False
    if entry is not None:
        if "releases" in entry:
            return _listed(entry["releases"], tag), True
        pattern = entry.get("tag")
        match = re.search(pattern, tag) if pattern else None
        return (_normal(match[1]) if match else None), bool(entry["official"])
    said = "vllm" in tag.lower()  # a tag that names vLLM beside the number says whose it is
    if said:
        match = re.search(r"vllm[_-]?v?(\d+\.\d+\.\d+(?:\.\d+)?(?:[._-]?(?:post|rc)\d+)?)", tag, re.IGNORECASE)
    else:
        match = _VERSION.match(tag) if "vllm" in repository.rpartition("/")[2].lower() else None
    version = _normal(match[1]) if match else None
    # vLLM has not reached 1.0, and had no image before 0.2: another number is the image's own.
    known = version is not None and (0, 2) <= Version(version).release[:2] < (1, 0)
    return (version if known else None), known and said


def _listed(releases: dict[str, str], tag: str) -> str | None:
    """The vLLM version of a publisher's own release: by the first two numbers of its tag.

    A word behind the numbers (``1.2.0-deepseek-v4-dev.3``) makes another build, but for Python's and CUDA's.
    """
    match = re.fullmatch(r"v?(\d+\.\d+)(?:\.\d+)?(?:-(?:py3|cuda\d*|cu\d+|runtime|efa|arm64|amd64))*", tag)
    return releases.get(match[1]) if match else None


def _normal(text: str) -> str | None:
    try:
        return str(Version(text.replace("_", ".").replace("-", ".")))
    except InvalidVersion:
        return None


def _mutable_reason(tag: str | None) -> str | None:
    if tag is None:
        return "no tag: the registry's latest"
    parts = re.split(r"[-_.]", tag.lower())
    rolling = next((part for part in parts if part in _ROLLING), None)
    if rolling is None or (rolling == "nightly" and any(_COMMIT.fullmatch(part) for part in parts)):
        return None
    # `v0.11.0-dev` is a build of one version; a rolling word beside a full version moves no further than that.
    if _VERSION.match(tag) and rolling not in ("latest", "nightly"):
        return None
    return f'the tag "{tag}" moves'


def _backend_of(entry: dict[str, Any] | None, repository: str, tag: str) -> Backend | None:
    for source in (repository.rpartition("/")[2], tag):
        for part in re.split(r"[-_.:/]", source.lower()):
            for pattern, backend in _BACKENDS:
                if pattern.fullmatch(part):
                    return backend  # type: ignore[return-value]
    backend_of_entry: Backend | None = entry.get("backend") if entry is not None else None
    return backend_of_entry
