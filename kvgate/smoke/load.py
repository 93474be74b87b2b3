"""A short closed-loop load on an OpenAI endpoint: so many clients, each with one request at a time.

Prompts are token ids, so that a request is as long as declared whatever the tokenizer; all begin with the declared
shared prefix and go on with tokens of their own. Answers are exactly as long as declared (``ignore_eos``).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kvgate.capacity.prediction import Prediction, Workload
from kvgate.engine.exposition import EngineMetrics, MetricsError, read_metrics
from kvgate.records import record
from kvgate.smoke.verdict import Load, Moment, Phase
from kvgate.smoke.verify import SmokeError

if TYPE_CHECKING:
    import httpx

MOST_CLIENTS: Final = 256
_SAMPLE_S: Final = 0.25
_METRICS_TIMEOUT_S: Final = 10.0
_CALM_S: Final = 5.0
_FIRST_TOKEN: Final = 10  # the first ids are control tokens in most vocabularies
_LAST_TOKEN: Final = 30_000
_MOST_ERRORS: Final = 3


@record
class Endpoint:
    """Where the load goes. ``key`` is sent as a bearer token, None where the server asks for none."""

    url: str
    model: str
    key: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


@record
class PhasePlan:
    name: str
    clients: int
    requests: int


@record
class LoadPlan:
    """The load that will be sent; see :class:`kvgate.smoke.verdict.Load`.

    ``full_usage`` is the share of the pool beyond which it cannot take one more request.
    """

    workload: Workload
    scaling: tuple[str, ...]
    phases: tuple[PhasePlan, ...]
    vocabulary: int
    seconds: float
    seed: int = 0
    full_usage: float = 1.0


def scaled_workload(
    declared: Workload | None,
    prediction: Prediction,
    *,
    replicas: int = 1,
    token_cap: int | None = None,
) -> tuple[Workload, tuple[str, ...]]:
    """The workload of one server, and how it differs from the declared one, a sentence a rule.

    Without a declared workload, requests of max_model_len, an eighth of it (at most 256 tokens) output.
    """
    length = prediction.kv_cache.max_model_len or 2048
    rules: list[str] = []
    if declared is None or declared.prompt_tokens is None:
        output = max(1, min(256, length // 8))
        base = Workload(length - output, output, 0, declared.peak_concurrency if declared else None)
        rules.append(f"no workload is declared: requests of max_model_len, {length:,} tokens")
    else:
        base = Workload(
            max(1, declared.prompt_tokens),
            max(1, declared.output_tokens or 0),
            min(declared.shared_prefix_tokens, declared.prompt_tokens),
            declared.peak_concurrency,
        )
    prompt, output, shared = base.prompt_tokens or 1, base.output_tokens or 1, base.shared_prefix_tokens
    if prompt + output > length:
        output = min(output, max(1, length - 1))
        prompt = max(1, length - output)
        rules.append(f"a request is cut to max_model_len, {length:,} tokens")
    if token_cap is not None and prompt + output > token_cap:
        share = token_cap / (prompt + output)
        prompt, output = max(1, int(prompt * share)), max(1, int(output * share))
        shared = int(shared * share)
        rules.append(f"requests are scaled to {token_cap:,} tokens, each part by {share:.2f}")
    peak = base.peak_concurrency
    if peak is not None and replicas > 1:
        per_server = -(-peak // replicas)
        rules.append(f"{peak:,} at once over {replicas} replicas are {per_server:,} for one server")
        peak = per_server
    return Workload(prompt, output, min(shared, prompt), peak), tuple(rules)


def plan_load(
    workload: Workload,
    scaling: Sequence[str],
    prediction: Prediction,
    *,
    vocabulary: int,
    seconds: float,
    seed: int = 0,
    requests: int | None = None,
    data_parallel_size: int = 1,
) -> LoadPlan:
    """Phases that put the prediction to the test.

    First as many clients as are sustained, a request each: nothing may be preempted. Then the declared number, two
    requests each, to see the queue. Clients beyond four times the admitted number would only wait, and are left out.
    """
    expected = prediction.concurrency
    sustained = (expected.sustained or 0) * data_parallel_size if expected else 0
    if expected and expected.sustained_interval[0] is not None:
        sustained = expected.sustained_interval[0] * data_parallel_size
    admitted = (expected.admitted or 0) * data_parallel_size if expected else 0
    rules = list(scaling)
    enough = max(4 * admitted, admitted + 8)
    declared = workload.peak_concurrency
    clients = min(declared, enough) if declared is not None else enough
    if declared is not None and clients < declared:
        rules.append(f"{clients:,} clients stand for {declared:,}: the others would only wait")
    if clients > MOST_CLIENTS:
        rules.append(f"at most {MOST_CLIENTS} clients are run")
        clients = MOST_CLIENTS
    phases: list[PhasePlan] = []
    if 0 < sustained < clients:
        phases.append(PhasePlan("sustained", sustained, sustained))
    phases.append(PhasePlan("declared", clients, requests or 2 * clients))
    return LoadPlan(workload, tuple(rules), tuple(phases), vocabulary, seconds, seed, 1 - 1 / (sustained + 1))


@record
class Outcome:
    """What a load showed.

    ``stopped`` says that the server went away, ``refused`` that it takes no such requests (a pooling model, say); None
    where it did not.
    """

    load: Load
    timeline: tuple[Moment, ...]
    metrics: EngineMetrics | None
    stopped: str | None
    refused: str | None = None


Progress = Callable[[int, int, Moment | None], None]


def run_load(
    endpoint: Endpoint,
    plan: LoadPlan,
    *,
    alive: Callable[[], bool] = lambda: True,
    progress: Progress = lambda done, total, moment: None,
) -> Outcome:
    """Send the load and watch ``/metrics``; ends by the plan's time, whatever the server does.

    Args:
        alive: false when the server is known to be gone.
        progress: called now and then with completed and planned requests and the last look at the server.
    """
    return asyncio.run(_Run(endpoint, plan, alive, progress).run())


class _Run:
    def __init__(self, endpoint: Endpoint, plan: LoadPlan, alive: Callable[[], bool], progress: Progress) -> None:
        self.endpoint = endpoint
        self.plan = plan
        self.alive = alive
        self.progress = progress
        self.moments: list[Moment] = []
        self.errors: dict[str, None] = {}
        self.stopped: str | None = None
        self.refused: str | None = None
        self.begun = time.monotonic()
        self.index = 0
        self.done = 0
        self.total = sum(phase.requests for phase in plan.phases)
        self.first: EngineMetrics | None = None
        self.last: EngineMetrics | None = None

    async def run(self) -> Outcome:
        import httpx

        limits = httpx.Limits(max_connections=max(phase.clients for phase in self.plan.phases) + 4)
        deadline = self.begun + self.plan.seconds
        phases: list[Phase] = []
        async with httpx.AsyncClient(
            base_url=self.endpoint.url.rstrip("/"),
            headers=self.endpoint.headers,
            limits=limits,
            timeout=httpx.Timeout(None, connect=10.0),
            trust_env=False,
        ) as client:
            for phase in self.plan.phases:
                if self.over or time.monotonic() >= deadline:
                    break
                phases.append(await self.phase(client, phase, deadline))
                await self.calm(client)
        load = Load(self.plan.workload, self.plan.scaling, tuple(phases), tuple(self.errors))
        return Outcome(load, tuple(self.moments), self.last, self.stopped, self.refused)

    @property
    def over(self) -> bool:
        return self.stopped is not None or self.refused is not None

    async def phase(self, client: httpx.AsyncClient, phase: PhasePlan, deadline: float) -> Phase:
        before = await self.look(client)
        self.first = self.first or before
        first, started = len(self.moments), time.monotonic()
        counts = {"sent": 0, "completed": 0, "failed": 0}

        async def work() -> None:
            while counts["sent"] < phase.requests and not self.over:
                counts["sent"] += 1
                good = await self.request(client)
                counts["completed" if good else "failed"] += 1
                self.done += 1
                every = counts["failed"] >= min(phase.requests, phase.clients) and not counts["completed"]
                if every and self.refused is None:
                    self.stopped = self.stopped or "every request failed"

        watcher = asyncio.ensure_future(self.watch(client))
        workers = [asyncio.ensure_future(work()) for _ in range(phase.clients)]
        try:
            _, late = await asyncio.wait(workers, timeout=max(0.1, deadline - time.monotonic()))
        finally:
            # also when the run is interrupted: an open request would keep the server busy
            for task in (*workers, watcher):
                task.cancel()
            await asyncio.gather(*workers, watcher, return_exceptions=True)
        after = await self.look(client) or before
        seen = self.moments[first:]
        usages = [one.usage for one in seen if one.usage is not None]
        full = [one for one in seen if one.waiting and one.usage is not None and one.usage >= self.plan.full_usage]
        return Phase(
            name=phase.name,
            clients=phase.clients,
            requests=phase.requests,
            completed=counts["completed"],
            failed=counts["failed"],
            seconds=round(time.monotonic() - started, 3),
            peak_running=max((one.running for one in seen), default=None),
            peak_waiting=max((one.waiting for one in seen), default=None),
            peak_usage=max(usages, default=None),
            preemptions=_grown(before, after, "preemptions"),
            hit_rate=_hit_rate(before, after),
            running_when_full=max((one.running for one in full), default=None),
            cut_short=bool(late),
        )

    async def request(self, client: httpx.AsyncClient) -> bool:
        import httpx

        self.index += 1
        workload = self.plan.workload
        body = {
            "model": self.endpoint.model,
            "prompt": prompt_tokens(self.plan, self.index),
            "max_tokens": workload.output_tokens or 1,
            "ignore_eos": True,
            "temperature": 0,
            "stream": False,
        }
        try:
            answer = await client.post("/v1/completions", json=body)
        except httpx.HTTPError as error:
            self.failed(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
            if not self.alive():
                self.stopped = "the server ended during the load"
            return False
        if answer.status_code == 200:
            return True
        self.failed(f"{answer.status_code}: {_message(answer.text)}")
        if 400 <= answer.status_code < 500 and answer.status_code != 429:
            self.refused = f"the server takes no such request ({answer.status_code}): {_message(answer.text)}"
        return False

    def failed(self, words: str) -> None:
        if len(self.errors) < _MOST_ERRORS:
            self.errors[words] = None

    async def watch(self, client: httpx.AsyncClient) -> None:
        while True:
            seen = await self.look(client)
            if seen is not None and seen.running is not None:
                moment = Moment(
                    seconds=round(time.monotonic() - self.begun, 2),
                    time=None,
                    running=seen.running,
                    waiting=seen.queued or 0,
                    usage=seen.usage,
                    preemptions=_grown(self.first, seen, "preemptions"),
                    hit_rate=_hit_rate(self.first, seen),
                )
                self.moments.append(moment)
                self.progress(self.done, self.total, moment)
            elif not self.alive():
                self.stopped = self.stopped or "the server ended during the load"
                return
            await asyncio.sleep(_SAMPLE_S)

    async def look(self, client: httpx.AsyncClient) -> EngineMetrics | None:
        import httpx

        with contextlib.suppress(httpx.HTTPError, MetricsError):
            answer = await client.get("/metrics", timeout=_METRICS_TIMEOUT_S)
            if answer.status_code == 200:
                self.last = read_metrics(answer.text)
                return self.last
        return None

    async def calm(self, client: httpx.AsyncClient) -> None:
        """Wait for what was cancelled to leave the server."""
        until = time.monotonic() + _CALM_S
        while time.monotonic() < until and self.alive():
            seen = await self.look(client)
            if seen is None or not seen.running:
                return
            await asyncio.sleep(_SAMPLE_S)


def prompt_tokens(plan: LoadPlan, index: int) -> list[int]:
    """The prompt of a request: the shared prefix, then tokens that no other request has in this order."""
    workload = plan.workload
    top = max(_FIRST_TOKEN + 2, min(plan.vocabulary, _LAST_TOKEN)) - 1
    low = min(_FIRST_TOKEN, top - 1)
    shared = min(workload.shared_prefix_tokens, workload.prompt_tokens or 0)
    common, own = random.Random(f"{plan.seed}"), random.Random(f"{plan.seed}/{index}")  # noqa: S311 - no secret
    prefix = [common.randint(low, top) for _ in range(shared)]
    return prefix + [own.randint(low, top) for _ in range((workload.prompt_tokens or 1) - shared)]


def _grown(before: EngineMetrics | None, after: EngineMetrics | None, name: str) -> int | None:
    if before is None or after is None:
        return None
    first, last = getattr(before, name), getattr(after, name)
    return None if first is None or last is None else int(last - first)


def _hit_rate(before: EngineMetrics | None, after: EngineMetrics | None) -> float | None:
    queries, hits = _grown(before, after, "prefix_queries"), _grown(before, after, "prefix_hits")
    if queries and hits is not None:
        return hits / queries
    return after.hit_rate if after is not None else None


def _message(text: str) -> str:
    import json

    with contextlib.suppress(ValueError):
        body: Any = json.loads(text)
        if isinstance(body, dict):
            inner = body.get("error", body)
            found = inner.get("message") if isinstance(inner, dict) else inner
            if isinstance(found, str):
                return found[:300]
    return text.strip()[:300]


# --- what a server says before the load ------------------------------------------------------------------------------


@record
class Greeting:
    """What an endpoint says of itself: version, served models with their lengths, and its metrics."""

    version: str | None
    models: tuple[tuple[str, int | None], ...]
    metrics: EngineMetrics | None


def greet(url: str, key: str | None = None, timeout_s: float = 15.0) -> Greeting:
    """Ask a server who it is.

    Raises:
        SmokeError: nothing answers there, it wants a key, or it is no OpenAI endpoint.
    """
    import httpx

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=timeout_s, trust_env=False) as client:
            answer = client.get("/v1/models")
            if answer.status_code in (401, 403):
                raise SmokeError(f"{url} answers {answer.status_code}: set VLLM_API_KEY to a key that it accepts")
            if answer.status_code != 200:
                raise SmokeError(f"{url} answers {answer.status_code} to /v1/models: no OpenAI endpoint")
            models = tuple(
                (str(entry["id"]), entry.get("max_model_len")) for entry in answer.json()["data"] if "id" in entry
            )
            return Greeting(_version(client), models, _metrics(client))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SmokeError(f"{url} cannot be reached: {error or type(error).__name__}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SmokeError(f"{url}: /v1/models is not what an OpenAI endpoint answers") from None


def _version(client: httpx.Client) -> str | None:
    answer = client.get("/version")
    if answer.status_code != 200:
        return None
    with contextlib.suppress(ValueError, AttributeError):
        found = answer.json().get("version")
        return found if isinstance(found, str) else None
    return None


def _metrics(client: httpx.Client) -> EngineMetrics | None:
    answer = client.get("/metrics")
    if answer.status_code != 200:
        return None
    with contextlib.suppress(MetricsError):
        return read_metrics(answer.text)
    return None
