"""What a manifest says around a server besides its command line: probes, volumes, limits, ports, shutdown.

One view over Kubernetes pods, Compose services and ``docker run`` lines. A figure that the files do not determine is
None; a place is always known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

from kvgate.manifests.tree import entries_at, items_at, node_at, scalar_at, text_at
from kvgate.patterns import regex
from kvgate.records import record
from kvgate.source.text import Span
from kvgate.source.yaml_tree import Mapping, Node, Scalar, Sequence, is_null, scalar_bool, scalar_int

if TYPE_CHECKING:
    from kvgate.manifests.objects import Pod
    from kvgate.ruleset.case import Case

ProbeKind = Literal["startup", "liveness", "readiness", "healthcheck"]

#: Seconds in Kubernetes' defaults (core/v1 Probe) and Docker's (HEALTHCHECK).
PROBE_DEFAULTS: Final = {"period": 10, "timeout": 1, "failures": 3, "delay": 0}
HEALTHCHECK_DEFAULTS: Final = {"period": 30, "timeout": 30, "failures": 3, "delay": 0}

#: Seconds between SIGTERM and SIGKILL where nothing is stated.
GRACE_SECONDS: Final = 30
COMPOSE_GRACE_SECONDS: Final = 10


@record
class Probe:
    """A health check, with defaults filled in; ``None`` where a figure is written and not a number.

    Attributes:
        stated: the keys that are written, of ``period``, ``timeout``, ``failures``, ``delay``.
        spans: where each of them stands.
        path: of an HTTP probe.
    """

    kind: ProbeKind
    delay_seconds: float | None
    period_seconds: float | None
    timeout_seconds: float | None
    failures: int | None
    path: str | None
    handler: str | None
    span: Span
    spans: dict[str, Span]

    @property
    def budget_seconds(self) -> float | None:
        """From the container's start to the last failure that is still forgiven."""
        if self.delay_seconds is None or self.period_seconds is None or self.failures is None:
            return None
        return self.delay_seconds + self.period_seconds * self.failures

    @property
    def tolerance_seconds(self) -> float | None:
        """How long a server that answers no more goes on being trusted."""
        if self.period_seconds is None or self.failures is None:
            return None
        return self.period_seconds * self.failures

    @property
    def place(self) -> Span:
        """What must change for a longer budget."""
        first = ("failures", "delay", "period") if self.kind == "startup" else ("delay", "failures", "period")
        for key in first:
            if key in self.spans:
                return self.spans[key]
        return self.span


@record
class Mount:
    """A path inside the container and what stands behind it."""

    target: str
    kind: str  # pvc, hostPath, bind, volume, emptyDir, memory, tmpfs, configMap, secret, image, other
    source: str
    span: Span
    read_only: bool = False


@record
class Published:
    """A port that is reachable from outside the container's host network namespace."""

    address: str | None
    port: str
    span: Span

    @property
    def local(self) -> bool:
        return self.address is not None and (
            self.address.startswith("127.") or self.address in ("localhost", "[::1]", "::1")
        )


@record
class Amount:
    """A number with its place; None where it is written and not a number."""

    value: float | None
    span: Span


class Host:
    """The surroundings of one unit."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.unit = case.unit
        self.node = self.unit.node
        self._pod: Any = False

    @property
    def pod(self) -> Pod | None:
        if self._pod is False:
            self._pod = self.case.scene.objects.pod(self.unit) if self.is_object else None
        pod: Pod | None = self._pod
        return pod

    @property
    def spec(self) -> Node | None:
        return self.pod.spec if self.pod is not None else None

    @property
    def is_compose(self) -> bool:
        return self.unit.kind == "compose"

    @property
    def is_object(self) -> bool:
        """A Kubernetes object, plain or custom."""
        return not self.is_compose and node_at(self.unit.document, "kind") is not None

    @property
    def is_patch(self) -> bool:
        """What a patch says of an object that is not among the files: what it lacks may be there."""
        return self.pod is not None and self.unit.image is None and node_at(self.node, "image") is None

    @property
    def is_values(self) -> bool:
        """Values of a Helm chart, from which its templates make the objects."""
        return self.unit.kind in ("helm-values", "HelmRelease")

    @property
    def values(self) -> tuple[Node, ...]:
        """For values of a chart, the mappings that may speak of the server: its own, then those around it."""
        if not self.is_values:
            return ()
        own = self.node
        whole = self.unit.document
        if self.unit.kind == "HelmRelease":
            whole = node_at(whole, "spec", "values") or whole
        around = _enclosing(whole, own) if own is not None else []
        return (*([own] if own is not None else []), *reversed(around)) or ((whole,) if whole is not None else ())

    def value(self, *keys: str) -> Node | None:
        """A value of a chart below a path of keys, the server's own before the file's."""
        return next((found for holder in self.values if (found := node_at(holder, *keys)) is not None), None)

    # -- health ----------------------------------------------------------------------------------------------------

    def probe(self, kind: ProbeKind) -> Probe | None:
        """A probe of the container; a Compose health check is ``healthcheck``."""
        if kind == "healthcheck":
            return _healthcheck(node_at(self.node, "healthcheck")) if self.is_compose else None
        if self.is_values:
            node = self.value(f"{kind}Probe") or self.value("probes", kind) or self.value("probes", f"{kind}Probe")
            if not isinstance(node, Mapping) or scalar_bool(node.get("enabled")) is False:
                return None
            written = node.get("spec")
            if isinstance(written, Mapping):
                return _probe(kind, written)
            # what is not written is the chart's, not Kubernetes'
            return _probe(kind, node, defaults=False) if node.entries else None
        if not self.is_object:
            return None
        node = node_at(self.node, f"{kind}Probe")
        return _probe(kind, node) if isinstance(node, Mapping) else None

    # -- memory and processors -------------------------------------------------------------------------------------

    @property
    def memory_limit(self) -> Amount | None:
        """The container's memory limit in bytes."""
        from kvgate.manifests.quantities import quantity_bytes

        if self.is_object or self.is_values:
            found = (
                self.value("resources", "limits", "memory")
                or self.value("limitMemory")  # the production stack's chart
                or node_at(self.node, "resources", "limits", "memory")
            )
            return Amount(quantity_bytes(found.value), found.span) if isinstance(found, Scalar) else None
        if self.is_compose:
            for keys in (("mem_limit",), ("deploy", "resources", "limits", "memory")):
                node = scalar_at(self.node, *keys)
                if node is not None:
                    return Amount(docker_bytes(node.value), node.span)
        option = self.docker_option("--memory", "-m")
        return Amount(docker_bytes(option[0]), option[1]) if option is not None else None

    @property
    def cpu_limit(self) -> Amount | None:
        """The container's processor limit in cores."""
        for keys in (("resources", "limits", "cpu"), ("cpus",), ("deploy", "resources", "limits", "cpus")):
            node = scalar_at(self.node, *keys)
            if node is not None:
                return Amount(_cores(node.value), node.span)
        option = self.docker_option("--cpus")
        return Amount(_cores(option[0]), option[1]) if option is not None else None

    # -- volumes ---------------------------------------------------------------------------------------------------

    @property
    def mounts(self) -> tuple[Mount, ...]:
        return tuple(self._mounts())

    def _mounts(self) -> Iterator[Mount]:
        if self.is_object:
            volumes = {text_at(volume, "name"): volume for volume in items_at(self.spec, "volumes")}
            claims = {
                text_at(claim, "metadata", "name")
                for claim in items_at(self.unit.document, "spec", "volumeClaimTemplates")
            }
            for mount in items_at(self.node, "volumeMounts"):
                target, name = text_at(mount, "mountPath"), text_at(mount, "name")
                if target is None:
                    continue
                read_only = scalar_bool(node_at(mount, "readOnly")) is True
                if name in claims:
                    yield Mount(target, "pvc", name or "", mount.span, read_only)
                else:
                    yield Mount(target, *_volume(volumes.get(name)), mount.span, read_only)
        elif self.is_compose:
            for item in items_at(self.node, "volumes"):
                yield from _compose_mount(item)
            for item in _scalars(node_at(self.node, "tmpfs")):
                yield Mount(item.value.partition(":")[0], "tmpfs", "", item.span)
        else:
            for value, span in self.docker_options("-v", "--volume"):
                source, target, mode = _split_mount(value)
                if target:
                    kind = "bind" if source.startswith(("/", ".", "~", "$")) else "volume"
                    yield Mount(target, kind, source, span, "ro" in mode)
            for value, span in self.docker_options("--mount"):
                fields = dict(part.partition("=")[::2] for part in value.split(","))
                target = fields.get("target") or fields.get("dst") or fields.get("destination")
                if target:
                    yield Mount(
                        target, fields.get("type", "volume"), fields.get("source") or fields.get("src", ""), span
                    )

    def mounted_at(self, path: str) -> Mount | None:
        """The mount that holds a path, the innermost one."""
        holding = [mount for mount in self.mounts if _inside(path, mount.target)]
        return max(holding, key=lambda mount: len(mount.target.rstrip("/")), default=None)

    # -- user ------------------------------------------------------------------------------------------------------

    @property
    def user(self) -> Amount | None:
        """The numeric user that the container runs as, None where nothing says."""
        for holder in (node_at(self.node, "securityContext"), node_at(self.spec, "securityContext")):
            node = scalar_at(holder, "runAsUser")
            if node is not None:
                return Amount(scalar_int(node), node.span)
        node = scalar_at(self.node, "user") if self.is_compose else None
        if node is not None:
            first = node.value.partition(":")[0]
            return Amount(_whole(first), node.span)
        option = self.docker_option("--user", "-u")
        if option is not None:
            first = option[0].partition(":")[0]
            return Amount(_whole(first), option[1])
        return None

    @property
    def non_root(self) -> Span | None:
        """Where ``runAsNonRoot: true`` stands."""
        for holder in (node_at(self.node, "securityContext"), node_at(self.spec, "securityContext")):
            node = node_at(holder, "runAsNonRoot")
            if node is not None and scalar_bool(node):
                return node.span
        return None

    @property
    def read_only_root(self) -> Span | None:
        """Where the root file system is made read-only."""
        node = node_at(self.node, "securityContext", "readOnlyRootFilesystem") or (
            node_at(self.node, "read_only") if self.is_compose else None
        )
        return node.span if node is not None and scalar_bool(node) else None

    # -- network ---------------------------------------------------------------------------------------------------

    @property
    def published(self) -> tuple[Published, ...]:
        """Ports that Compose or ``docker run`` publishes on the host; host ports of a pod."""
        return tuple(self._published())

    def _published(self) -> Iterator[Published]:
        if self.is_object:
            for port in items_at(self.node, "ports"):
                host = scalar_at(port, "hostPort")
                if host is not None and host.value != "0":
                    yield Published(text_at(port, "hostIP"), host.value, host.span)
        elif self.is_compose:
            for item in items_at(self.node, "ports"):
                if isinstance(item, Scalar):
                    yield _published_port(item.value, item.span)
                elif scalar_at(item, "published") is not None:
                    yield Published(text_at(item, "host_ip"), text_at(item, "published") or "", item.span)
        else:
            for value, span in self.docker_options("-p", "--publish"):
                yield _published_port(value, span)

    @property
    def host_network(self) -> Span | None:
        """Where the container is put into the host's network."""
        if self.is_object:
            node = node_at(self.spec, "hostNetwork")
            return node.span if node is not None and scalar_bool(node) else None
        if self.is_compose:
            node = node_at(self.node, "network_mode")
            return node.span if isinstance(node, Scalar) and node.value == "host" else None
        option = self.docker_option("--network", "--net")
        return option[1] if option is not None and option[0] == "host" else None

    @property
    def service_links(self) -> bool:
        """Whether variables of the namespace's Services come into the environment."""
        if not self.is_object:
            return False
        node = node_at(self.spec, "enableServiceLinks")
        return not (node is not None and scalar_bool(node) is False)

    # -- shutdown --------------------------------------------------------------------------------------------------

    @property
    def grace(self) -> Amount | None:
        """Seconds until the container is killed, where they are stated."""
        if self.is_object:
            node = scalar_at(self.spec, "terminationGracePeriodSeconds")
            return Amount(scalar_int(node), node.span) if node is not None else None
        node = scalar_at(self.node, "stop_grace_period") if self.is_compose else None
        if node is not None:
            return Amount(duration_seconds(node.value), node.span)
        option = self.docker_option("--stop-timeout", "-t")
        return Amount(float(option[0]), option[1]) if option is not None and option[0].isdecimal() else None

    @property
    def pre_stop(self) -> Amount | None:
        """Seconds that the preStop hook sleeps; None where there is no hook, or it does not say how long."""
        hook = node_at(self.node, "lifecycle", "preStop")
        if hook is None:
            return None
        sleep = scalar_at(hook, "sleep", "seconds")
        if sleep is not None:
            return Amount(scalar_int(sleep), sleep.span)
        words = [item.value for item in _scalars(node_at(hook, "exec", "command"))]
        found = [float(part) for part in re.findall(r"\bsleep\s+(\d+(?:\.\d+)?)", " ".join(words))]
        return Amount(sum(found), hook.span) if found else None

    # -- docker run ------------------------------------------------------------------------------------------------

    def docker_option(self, *names: str) -> tuple[str, Span] | None:
        """The value of the last of a ``docker run`` option."""
        found = list(self.docker_options(*names))
        return found[-1] if found else None

    def docker_options(self, *names: str) -> Iterator[tuple[str, Span]]:
        """Values of a ``docker run`` option, in order, with the place of each."""
        words = self._docker_words()
        for index, (text, span) in enumerate(words):
            for name in names:
                if text == name and index + 1 < len(words):
                    value, where = words[index + 1]
                    yield value, Span(span.file, span.start, where.end)
                elif name.startswith("--") and text.startswith(name + "="):
                    yield text[len(name) + 1 :], span
                elif not name.startswith("--") and re.fullmatch(re.escape(name) + r"[^-\s=].*", text):
                    yield text[len(name) :], span

    def docker_flag(self, *names: str) -> Span | None:
        """Where a ``docker run`` option stands, with or without a value."""
        for text, span in self._docker_words():
            if any(text == name or text.startswith(name + "=") for name in names):
                return span
        return None

    @property
    def is_docker_run(self) -> bool:
        return bool(self._docker_words())

    def _docker_words(self) -> list[tuple[str, Span]]:
        if self.is_object or self.is_compose:
            return []
        return _docker_run(self.unit.span)


_DOCKER: Final = regex(r"\b(?:docker|podman|nerdctl)(?:\s+container)?\s+(?:run|create)\b")
_SHELL_WORD: Final = regex(r"""(?:[^\s"'\\;&|]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""", re.DOTALL)


def _docker_run(span: Span) -> list[tuple[str, Span]]:
    """Words of the ``docker run`` command at (or around) a span, up to its image."""
    file = span.file
    start = span.start
    match = _DOCKER.search(file.text, start, span.end)
    if match is None:
        # the unit may begin at its image or its arguments: the command begins lines above, each with a backslash
        line = span.line
        while line > 1 and file.line_text(line - 1).rstrip().endswith("\\"):
            line -= 1
        match = _DOCKER.search(file.text, file.line_starts[line - 1], span.end)
        if match is None:
            return []
    words: list[tuple[str, Span]] = []
    at = match.end()
    while at < len(file.text):
        continued = re.compile(r"(?:[ \t]+|\\\r?\n)+").match(file.text, at)
        at = continued.end() if continued else at
        word = _SHELL_WORD.match(file.text, at)
        if word is None:
            break
        text = word.group().replace('"', "").replace("'", "")
        words.append((text, Span(file, word.start(), word.end())))
        at = word.end()
        if len(words) > 400:
            break
    return words


def _scalars(node: Node | None) -> list[Scalar]:
    if isinstance(node, Scalar):
        return [] if is_null(node) else [node]
    return [item for item in node.items if isinstance(item, Scalar)] if isinstance(node, Sequence) else []


def _probe(kind: ProbeKind, node: Mapping, *, defaults: bool = True) -> Probe:
    keys = {
        "delay": "initialDelaySeconds",
        "period": "periodSeconds",
        "timeout": "timeoutSeconds",
        "failures": "failureThreshold",
    }
    figures: dict[str, int | None] = dict(PROBE_DEFAULTS) if defaults else {**dict.fromkeys(PROBE_DEFAULTS), "delay": 0}
    spans: dict[str, Span] = {}
    for name, key in keys.items():
        entry = node.entry(key)
        if entry is not None:
            figures[name] = scalar_int(entry.value)
            spans[name] = Span(entry.key.span.file, entry.key.span.start, max(entry.key.span.end, entry.value.span.end))
    handler = next((name for name in ("httpGet", "exec", "tcpSocket", "grpc") if node.get(name) is not None), None)
    return Probe(
        kind=kind,
        delay_seconds=figures["delay"],
        period_seconds=figures["period"],
        timeout_seconds=figures["timeout"],
        failures=figures["failures"],
        path=text_at(node, "httpGet", "path"),
        handler=handler,
        span=_opening(node),
        spans=spans,
    )


def _opening(node: Node) -> Span:
    """The first line of a mapping."""
    span = node.span
    line = span.file.line_span(span.line)
    return Span(span.file, span.start, min(span.end, line.end)) if span.start < line.end else line


def _healthcheck(node: Node | None) -> Probe | None:
    if not isinstance(node, Mapping) or scalar_bool(node_at(node, "disable")) is True:
        return None
    test = " ".join(item.value for item in _scalars(node.get("test")))
    if test == "NONE":
        return None
    keys = {"delay": "start_period", "period": "interval", "timeout": "timeout", "failures": "retries"}
    figures: dict[str, float | None] = dict(HEALTHCHECK_DEFAULTS)
    spans: dict[str, Span] = {}
    for name, key in keys.items():
        entry = node.entry(key)
        if entry is not None and isinstance(entry.value, Scalar):
            figures[name] = scalar_int(entry.value) if name == "failures" else duration_seconds(entry.value.value)
            spans[name] = Span(entry.key.span.file, entry.key.span.start, max(entry.key.span.end, entry.value.span.end))
    failures = figures["failures"]
    match = re.search(r"https?://[^/\s\"']+(/[^\s\"'|]*)?", test)
    return Probe(
        kind="healthcheck",
        delay_seconds=figures["delay"],
        period_seconds=figures["period"],
        timeout_seconds=figures["timeout"],
        failures=int(failures) if failures is not None else None,
        path=match[1] if match else None,
        handler="test" if test else None,
        span=_opening(node),
        spans=spans,
    )


# Digits of a number that is one of people's.
_MAX_DIGITS: Final = 18


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None


_DURATION: Final = regex(r"(\d+(?:\.\d+)?)(h|ms|us|m|s)")


def duration_seconds(text: str) -> float | None:
    """A duration of Compose or Go (``1m30s``, ``90s``, a bare number of seconds); None for anything else."""
    text = text.strip()
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    factors = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
    return sum(float(number) * factors[unit] for number, unit in parts)


def docker_bytes(text: str) -> int | None:
    """A size of Docker (``16g``, ``512mb``) in bytes; None for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([bkmgtBKMGT]?)(?:[iI]?[bB])?\s*", text)
    if not match:
        return None
    if len(match[1]) > _MAX_DIGITS:
        return None
    power = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4}[match[2].lower()]
    return int(float(match[1]) * 1024**power)


def _cores(text: str) -> float | None:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)(m?)\s*", text)
    return None if match is None else float(match[1]) / (1000 if match[2] else 1)


_VOLUME_KINDS: Final = {
    "persistentVolumeClaim": "pvc", "hostPath": "hostPath", "configMap": "configMap", "secret": "secret",
    "image": "image", "nfs": "nfs", "csi": "csi", "ephemeral": "ephemeral", "projected": "projected",
}  # fmt: skip


def _volume(node: Node | None) -> tuple[str, str]:
    for key, kind in _VOLUME_KINDS.items():
        found = node_at(node, key)
        if found is not None:
            name = text_at(found, "claimName") or text_at(found, "path") or text_at(found, "name") or ""
            return kind, name
    empty = node_at(node, "emptyDir")
    if empty is not None:
        return ("memory" if text_at(empty, "medium") == "Memory" else "emptyDir"), ""
    return "other", ""


def _compose_mount(item: Node) -> Iterator[Mount]:
    if isinstance(item, Scalar):
        source, target, mode = _split_mount(item.value)
        if not target:
            yield Mount(source, "anonymous", "", item.span)
            return
        kind = "bind" if source.startswith(("/", ".", "~", "$")) else "volume"
        yield Mount(target, kind, source, item.span, "ro" in mode)
    else:
        place = text_at(item, "target")
        if place:
            yield Mount(place, text_at(item, "type") or "volume", text_at(item, "source") or "", item.span)


def _split_mount(text: str) -> tuple[str, str, str]:
    """``source:target[:mode]``; a ``${VAR:-default}`` in it holds colons of its own."""
    parts = re.split(r":(?![^{}]*\})", text)
    if len(parts) == 1:
        return parts[0], "", ""
    return parts[0], parts[1], ":".join(parts[2:])


def _published_port(text: str, span: Span) -> Published:
    parts = re.split(r":(?![^{}]*\}|[^\[\]]*\])", text)
    address = parts[0] if len(parts) > 2 else None
    return Published(address, parts[-1].partition("/")[0], span)


def _enclosing(whole: Node | None, inner: Node) -> list[Node]:
    """The mappings around a node, from the outermost one on; the outermost alone where it does not hold the node."""

    def path(node: Node) -> list[Node] | None:
        if node is inner:
            return []
        if not (node.span.start <= inner.span.start and inner.span.end <= node.span.end):
            return None
        below = [entry.value for entry in node.items()] if isinstance(node, Mapping) else []
        below += node.items if isinstance(node, Sequence) else []
        for child in below:
            found = path(child)
            if found is not None:
                return [node, *found] if isinstance(node, Mapping) else found
        return None

    if whole is None or whole is inner:
        return []
    return path(whole) or [whole]


def _inside(path: str, folder: str) -> bool:
    folder = folder.rstrip("/") or "/"
    return path.rstrip("/") == folder or path.startswith(folder if folder == "/" else folder + "/")


__all__ = ["Amount", "Host", "Mount", "Probe", "Published", "docker_bytes", "duration_seconds", "entries_at"]
