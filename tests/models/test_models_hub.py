"""The Hub behind real sockets: a loopback server that answers as the Hub's API does, well and badly."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kvgate.models import hub
from kvgate.models.resolve import ModelError, find_model, lock_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2}


class FakeHub(ThreadingHTTPServer):
    """Repositories by id -> file name -> bytes; ``failures`` by id -> (status, X-Error-Code)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.failures: dict[str, tuple[int, str | None]] = {}
        self.stall_seconds = 0.0
        self.requests: list[str] = []
        self.tokens: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        self.server.requests.append(self.path)
        self.server.tokens.add(self.headers.get("Authorization"))
        time.sleep(self.server.stall_seconds)
        path = self.path.partition("?")[0]
        api = path.startswith("/api/models/")
        parts = path.removeprefix("/api/models/").strip("/").split("/")
        name = "/".join(parts[:2])
        if failure := self.server.failures.get(name) or (not api and self.server.failures.get(name + " files")):
            return self._send(failure[0], b'{"error": "no"}', {"X-Error-Code": failure[1]} if failure[1] else {}, body)
        files = self.server.repositories.get(name)
        if files is None:
            return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body)
        if api:
            if parts[2:3] == ["revision"] and parts[3] not in {"main", COMMIT}:
                return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"}, body)
            siblings = [{"rfilename": file, "size": len(data)} for file, data in files.items()]
            info = {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False}
            return self._send(200, json.dumps(info).encode(), {"Content-Type": "application/json"}, body)
        assert parts[2] == "resolve"
        data = files.get("/".join(parts[4:]))
        if data is None:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"}, body)
        return self._send(200, data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT}, body)

    def _send(self, status: int, data: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a client that gave up
                self.wfile.write(data)


@pytest.fixture
def fake_hub() -> Iterator[FakeHub]:
    server = FakeHub()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def environment(server: FakeHub, tmp_path: Path, **more: str) -> dict[str, str]:
    return {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "no-hf-home"), **more}


def test_config_and_index_come_from_the_hub(fake_hub: FakeHub, tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 123456}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}
    fake_hub.repositories["acme/tiny"] = {
        "config.json": json.dumps(CONFIG).encode(),
        "generation_config.json": b'{"max_new_tokens": 7}',
        "model.safetensors.index.json": json.dumps(index).encode(),
        "modeling_acme.py": b"raise SystemExit",
    }
    environ = environment(fake_hub, tmp_path)
    lookup = find_model("acme/tiny", root=tmp_path, online=True, environ=environ)
    assert lookup.reason is None
    model = lookup.model
    assert model is not None
    assert (model.source, model.revision, model.config) == ("hub", COMMIT, CONFIG)
    assert model.files == {"generation_config.json": {"max_new_tokens": 7}}
    assert (model.checkpoint_bytes, model.checkpoint_source) == (
        123456,
        "total_size of model.safetensors.index.json on the Hub",
    )
    assert not any("modeling_acme" in path for path in fake_hub.requests)
    assert not (tmp_path / "no-hf-home").exists()  # nothing is written to the user's cache

    asked = len(fake_hub.requests)
    assert find_model("acme/tiny", root=tmp_path, online=True, environ=environ).model == model
    assert len(fake_hub.requests) == asked  # once in a process


def test_the_hub_is_not_asked_offline(fake_hub: FakeHub, tmp_path: Path) -> None:
    fake_hub.repositories["acme/tiny"] = {"config.json": json.dumps(CONFIG).encode()}
    lookup = find_model("acme/tiny", root=tmp_path, online=False, environ=environment(fake_hub, tmp_path))
    assert lookup.model is None
    assert "kvgate lock --online" in (lookup.reason or "")
    assert fake_hub.requests == []
    environ = environment(fake_hub, tmp_path, HF_HUB_OFFLINE="1")
    lookup = find_model("acme/tiny", root=tmp_path, online=True, environ=environ)
    assert lookup.reason == "acme/tiny: HF_HUB_OFFLINE is set, so the Hub was not asked"
    assert fake_hub.requests == []


def test_weight_files_without_an_index_are_summed(fake_hub: FakeHub, tmp_path: Path) -> None:
    fake_hub.repositories["acme/sized"] = {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors": bytes(1000),
        "consolidated.safetensors": bytes(1000),
        "pytorch_model.bin": bytes(3000),
    }
    model = hub.fetch_model("acme/sized", environment(fake_hub, tmp_path))
    assert (model.checkpoint_bytes, model.checkpoint_source) == (1000, "size of 1 .safetensors file(s) on the Hub")


@pytest.mark.parametrize(
    ("failure", "token", "expected"),
    [
        ((403, "GatedRepo"), None, "is gated: accept its terms on https://huggingface.co/acme/x and set HF_TOKEN."),
        ((403, "GatedRepo"), "hf_secret", "is gated: this token's account has no access."),
        ((401, None), None, "does not exist on the Hub, or is private"),
        ((401, None), "hf_secret", "cannot be seen with this token"),
        ((404, "RepoNotFound"), "hf_secret", "cannot be seen with this token"),
        ((500, None), None, "the Hub answered with status 500"),
        ((503, None), None, "the Hub answered with status 503"),
        ((429, None), None, "the Hub answered with status 429"),
    ],
)
def test_refusals_are_told_apart(
    fake_hub: FakeHub, tmp_path: Path, failure: tuple[int, str | None], token: str | None, expected: str
) -> None:
    fake_hub.failures["acme/x"] = failure
    environ = environment(fake_hub, tmp_path, **({"HF_TOKEN": token} if token else {}))
    started = time.monotonic()
    lookup = find_model("acme/x", root=tmp_path, online=True, environ=environ)
    assert lookup.model is None
    assert lookup.reason is not None
    assert lookup.reason.startswith("acme/x")
    assert expected in lookup.reason
    assert "hf_secret" not in lookup.reason
    assert "\n" not in lookup.reason
    assert fake_hub.tokens == {f"Bearer {token}" if token else None}
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ((401, "GatedRepo"), "acme/x is gated: accept its terms on https://huggingface.co/acme/x and set HF_TOKEN."),
        ((403, "GatedRepo"), "acme/x is gated: accept its terms on https://huggingface.co/acme/x and set HF_TOKEN."),
        # the releases of huggingface_hub report this differently
        ((500, None), "acme/x: the Hub "),
    ],
)
def test_a_repository_whose_files_are_refused(
    fake_hub: FakeHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: tuple[int, str | None],
    expected: str,
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # huggingface_hub waits between its tries
    # As the Hub does it for gated models: what the repository holds is public, its files are not.
    fake_hub.repositories["acme/x"] = {"config.json": json.dumps(CONFIG).encode()}
    fake_hub.failures["acme/x files"] = failure
    lookup = find_model("acme/x", root=tmp_path, online=True, environ=environment(fake_hub, tmp_path))
    assert (lookup.reason or "").startswith(expected)


def test_missing_revision_missing_config_adapter_gguf(fake_hub: FakeHub, tmp_path: Path) -> None:
    fake_hub.repositories["acme/tiny"] = {"config.json": json.dumps(CONFIG).encode()}
    fake_hub.repositories["acme/empty"] = {"README.md": b"x"}
    fake_hub.repositories["acme/lora"] = {"adapter_config.json": b"{}"}
    fake_hub.repositories["acme/quantised"] = {"model-q4.gguf": b"x"}
    environ = environment(fake_hub, tmp_path)

    def reason(name: str, revision: str | None = None) -> str | None:
        return find_model(name, root=tmp_path, online=True, environ=environ, revision=revision).reason

    assert reason("acme/tiny", "v9") == "acme/tiny has no revision v9 on the Hub"
    assert reason("acme/empty") == "acme/empty has no config.json on the Hub"
    assert reason("acme/lora") == "acme/lora is a LoRA adapter (adapter_config.json), not a model"
    assert "GGUF" in (reason("acme/quantised") or "")
    assert find_model("acme/tiny", root=tmp_path, online=True, environ=environ, revision=COMMIT).model is not None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"{", "acme/bad/config.json:1:2: not JSON"),
        (b"[1]", "acme/bad/config.json:1:1: an object expected, got a list"),
        (b" " * ((8 << 20) + 1), "acme/bad: config.json is larger than 8 MiB"),
    ],
)
def test_what_the_hub_sends_is_not_trusted(fake_hub: FakeHub, tmp_path: Path, data: bytes, expected: str) -> None:
    fake_hub.repositories["acme/bad"] = {"config.json": data}
    lookup = find_model("acme/bad", root=tmp_path, online=True, environ=environment(fake_hub, tmp_path))
    assert lookup.model is None
    assert (lookup.reason or "").startswith(expected)


def test_a_stalled_hub_times_out(fake_hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "TIMEOUT_SECONDS", 0.2)
    fake_hub.stall_seconds = 1.5
    started = time.monotonic()
    lookup = find_model("acme/slow", root=tmp_path, online=True, environ=environment(fake_hub, tmp_path))
    assert lookup.reason == "acme/slow: the Hub did not answer within 0.2 seconds"
    assert time.monotonic() - started < 10


def test_nobody_listens(tmp_path: Path) -> None:
    server = FakeHub()
    url = server.url
    server.server_close()
    environ = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path)}
    lookup = find_model("acme/tiny", root=tmp_path, online=True, environ=environ)
    assert (lookup.reason or "").startswith("acme/tiny: the Hub could not be reached: ")
    lookup = find_model("acme/other", root=tmp_path, online=True, environ=environ)
    assert lookup.reason == "acme/other: the Hub was not asked again after it could not be reached for acme/tiny"


def test_an_answer_of_another_shape(fake_hub: FakeHub, tmp_path: Path) -> None:
    fake_hub.failures["acme/odd"] = (200, None)  # {"error": "no"}: no id, no files
    lookup = find_model("acme/odd", root=tmp_path, online=True, environ=environment(fake_hub, tmp_path))
    assert lookup.model is None
    assert (lookup.reason or "").startswith("acme/odd")


def test_lock_writes_what_find_reads(fake_hub: FakeHub, tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 123456}, "weight_map": {}}
    fake_hub.repositories["acme/tiny"] = {
        "config.json": json.dumps(CONFIG).encode(),
        "hf_quant_config.json": b'{"quantization": {"kv_cache_quant_algo": "FP8"}}',
        "tokenizer_config.json": b'{"model_max_length": 4096, "chat_template": "long"}',
        "model.safetensors.index.json": json.dumps(index).encode(),
    }
    environ = environment(fake_hub, tmp_path)
    locked = lock_model("hf://acme/tiny", tmp_path, online=True, environ=environ)
    directory = tmp_path / ".kvgate" / "models" / "acme__tiny"
    assert (locked.directory, locked.changed) == (directory, True)
    assert json.loads((directory / "lock.json").read_text()) == {
        "schema": "kvgate.lock/1",
        "id": "acme/tiny",
        "requested_revision": None,
        "revision": COMMIT,
        "checkpoint_bytes": 123456,
        "checkpoint_source": "total_size of model.safetensors.index.json on the Hub",
        "files": ["config.json", "hf_quant_config.json", "tokenizer_config.json"],
    }
    assert str(locked) == ".kvgate/models/acme__tiny, revision 0123456789ab, 123,456 bytes of weights"
    again = lock_model("acme/tiny", tmp_path, online=True, environ=environ)
    assert again.changed is False
    assert str(again).endswith(" (unchanged)")

    model = find_model("acme/tiny", root=tmp_path).model
    assert model is not None
    assert (model.source, model.revision, model.checkpoint_bytes) == ("lock", COMMIT, 123456)
    assert model.config == CONFIG
    assert model.files == {
        "hf_quant_config.json": {"quantization": {"kv_cache_quant_algo": "FP8"}},
        "tokenizer_config.json": {"model_max_length": 4096},
    }
    # A file that the repository no longer has leaves the lock.
    del fake_hub.repositories["acme/tiny"]["hf_quant_config.json"]
    hub._ask.cache_clear()
    assert lock_model("acme/tiny", tmp_path, online=True, environ=environ).changed is True
    assert not (directory / "hf_quant_config.json").exists()


def test_lock_refuses_what_is_no_hub_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="path inside the container"):
        lock_model("/models/llama", tmp_path)
    with pytest.raises(ModelError, match="S3 bucket"):
        lock_model("s3://bucket/llama", tmp_path)
    with pytest.raises(ModelError, match=r"not in the Hugging Face cache. Run `kvgate lock --online`"):
        lock_model("acme/tiny", tmp_path, environ={"HF_HOME": str(tmp_path)})
