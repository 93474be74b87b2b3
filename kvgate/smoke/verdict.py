"""What a comparison found out, and its JSON form (``kvgate.smoke/1``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from kvgate.capacity.prediction import Concurrency, Prediction, Quantity, Workload
from kvgate.records import record

Outcome = Literal[
    "holds",  # everything that could be compared agrees
    "contradicted",
    "refused",  # the server did not start, or ended
    "unknown",  # nothing could be compared
]
SCHEMA: Final = "kvgate.smoke/1"
#: The value of an argument that one side does not give.
NOT_SET: Final = "not set"

TERM_WORDS: Final[Mapping[str, str]] = {
    "total": "total memory",
    "requested": "requested",
    "weights": "weights",
    "activation_peak": "activation peak",
    "non_torch": "non-torch",
    "cuda_graphs": "CUDA graphs",
    "kv_cache_available": "KV cache",
}
#: The checks, in words and in a sentence.
CHECK_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "num_gpu_blocks": ("blocks", "the pool has {} blocks"),
    "block_size": ("block size", "a block holds {} tokens"),
    "max_model_len": ("max_model_len", "max_model_len is {}"),
    "size_tokens": ("tokens", "the pool is printed as {} tokens"),
    "max_concurrency": ("requests of max_model_len", "{} requests of max_model_len fit"),
    "estimated_max_model_len": ("longest request that fits", "a request of up to {} tokens fits"),
    "running": ("peak running", "{} requests ran at once"),
    "running_when_full": ("running when full", "{} requests ran when the pool was full"),
    "preemptions": ("preemptions", "the number of preemptions is {}"),
}


@record
class Figure:
    """A measured number and what its printed digits stand for."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Figure:
        return cls(value, value, value)

    def as_dict(self, whole: bool = True) -> dict[str, Any]:
        values = {"value": self.value, "low": self.low, "high": self.high}
        return {name: round(value) if whole else value for name, value in values.items()}


@record
class Term:
    """A term of the memory budget, in bytes. ``holds`` is None where one side is not known."""

    name: str
    predicted: Quantity
    measured: Figure | None
    holds: bool | None

    @property
    def excess(self) -> int | None:
        """Bytes that were measured beyond the prediction; None where one side is not known."""
        if self.measured is None or self.predicted.bytes is None:
            return None
        return round(self.measured.value) - self.predicted.bytes

    def as_dict(self) -> dict[str, Any]:
        return {
            "term": self.name,
            "predicted": self.predicted.as_dict(),
            "measured": self.measured.as_dict() if self.measured else None,
            "holds": self.holds,
        }


@record
class Check:
    """A figure of the pool or of the load: it holds when the measured one lies in the predicted interval.

    ``given`` says what the prediction starts from (``the measured available memory``).
    """

    name: str
    low: float | None
    high: float | None
    measured: Figure | None
    holds: bool | None
    given: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "check": self.name,
            "predicted": [self.low, self.high],
            "measured": self.measured.value if self.measured else None,
            "holds": self.holds,
            "given": self.given,
        }


@record
class Difference:
    """The manifest says one thing and the server another.

    ``decisive`` where it makes the log that of another deployment, or the manifest wrong; ``figures`` are what it
    shapes (see :data:`kvgate.engine.shaping.SHAPES`).
    """

    name: str
    manifest: str
    server: str
    decisive: bool
    figures: tuple[str, ...] = ()

    @property
    def sides(self) -> str:
        """What the server has, and what the manifest says of it."""
        says = "does not set it" if self.manifest == NOT_SET else f"says {self.manifest}"
        return f"{self.server}, the manifest {says}"

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "manifest": self.manifest, "server": self.server, "decisive": self.decisive}


@record
class Refused:
    """Why the server did not start, or ended. ``needed`` and ``available`` are in ``unit``; ``expected`` is whether the
    prediction said that it would not start, None where it could not say."""

    kind: str
    message: str
    line: int | None
    needed: int | None
    available: int | None
    unit: str
    estimated_max_model_len: int | None
    expected: bool | None

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@record
class Moment:
    """One look at the running server: from ``/metrics`` (``seconds`` since the load began) or a line of its log."""

    seconds: float | None
    time: str | None
    running: int
    waiting: int
    usage: float | None
    preemptions: int | None
    hit_rate: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@record
class Running:
    """What the server's own lines say of its traffic.

    ``explained`` is whether the declared workload's prediction accounts for the peak; None where it says nothing
    about it (no queue, no workload).
    """

    peak_running: int
    waiting_at_peak: int
    peak_waiting: int
    peak_usage: float | None
    hit_rate: float | None
    preemptions: int | None
    samples: int
    explained: bool | None
    words: str

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@record
class Phase:
    """A stretch of the load with a fixed number of clients.

    ``running_when_full`` is the most that ran while others waited for a pool that could not take one more; None where
    that was never seen.
    """

    name: str
    clients: int
    requests: int
    completed: int
    failed: int
    seconds: float
    peak_running: int | None
    peak_waiting: int | None
    peak_usage: float | None
    preemptions: int | None
    hit_rate: float | None
    running_when_full: int | None = None
    cut_short: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@record
class Load:
    """The load as it was sent.

    ``workload`` is what each request was; ``scaling`` says how it differs from the declared one, a sentence a rule.
    ``errors`` are the first distinct failures, ``expected`` is what the prediction says of it.
    """

    workload: Workload
    scaling: tuple[str, ...]
    phases: tuple[Phase, ...]
    errors: tuple[str, ...] = ()
    expected: Concurrency | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "workload": self.workload.as_dict(),
            "scaling": list(self.scaling),
            "phases": [phase.as_dict() for phase in self.phases],
            "errors": list(self.errors),
            "expected": self.expected.as_dict() if self.expected else None,
        }


@record
class Verdict:
    """The whole comparison.

    Attributes:
        command: ``verify`` or ``smoke``.
        cause: the first cause of a contradiction or refusal, one sentence without a period.
        unit, path, line: the unit, None where there is only a log.
        server: version, how it is known, model, what else the log says of itself.
        lines: the log's decisive lines, as printed, with their numbers.
        notes: what a reader should know, a sentence each.
    """

    command: Literal["verify", "smoke"]
    outcome: Outcome
    cause: str | None
    unit: str | None
    path: str | None
    line: int | None
    server: dict[str, Any]
    differences: tuple[Difference, ...]
    terms: tuple[Term, ...]
    checks: tuple[Check, ...]
    refused: Refused | None
    running: Running | None
    load: Load | None
    timeline: tuple[Moment, ...]
    lines: tuple[tuple[int, str], ...]
    notes: tuple[str, ...]
    prediction: Prediction | None
    version: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The JSON contract ``kvgate.smoke/1``."""
        unit = {"id": self.unit, "path": self.path, "line": self.line} if self.unit is not None else None
        return {
            "schema": SCHEMA,
            "kvgate": self.version,
            "command": self.command,
            "outcome": self.outcome,
            "cause": self.cause,
            "unit": unit,
            "server": self.server,
            "differences": [one.as_dict() for one in self.differences],
            "memory": [one.as_dict() for one in self.terms],
            "checks": [one.as_dict() for one in self.checks],
            "refusal": self.refused.as_dict() if self.refused else None,
            "running": self.running.as_dict() if self.running else None,
            "load": self.load.as_dict() if self.load else None,
            "timeline": [one.as_dict() for one in self.timeline],
            "lines": [{"line": number, "text": text} for number, text in self.lines],
            "notes": list(self.notes),
            "prediction": self.prediction.as_dict() if self.prediction else None,
        }
