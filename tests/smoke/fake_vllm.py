#!/usr/bin/env python3
# ruff: noqa: PLW0603 - one process, one server
"""Stands in for an interpreter with vLLM: takes its command line, prints its log lines, serves its endpoints.

``VLLM_FAKE_MODE`` says how it fails, ``VLLM_FAKE_SLOTS`` how many requests run at once, ``VLLM_FAKE_PREEMPT_ABOVE``
beyond how many one is preempted. It writes the pids of itself and of what it starts to the file ``VLLM_FAKE_PIDS``.
"""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time

MODE = os.environ.get("VLLM_FAKE_MODE", "serve")
SLOTS = int(os.environ.get("VLLM_FAKE_SLOTS", "5"))
PREEMPT_ABOVE = int(os.environ.get("VLLM_FAKE_PREEMPT_ABOVE", "4"))
BLOCKS = int(os.environ.get("VLLM_FAKE_BLOCKS", "1280"))
SECONDS = float(os.environ.get("VLLM_FAKE_SECONDS", "0.6"))
KEY = os.environ.get("VLLM_API_KEY")

lock = threading.Lock()
slots = threading.Semaphore(SLOTS)
running = waiting = preemptions = served = 0


def note_pid(pid: int) -> None:
    path = os.environ.get("VLLM_FAKE_PIDS")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{pid}\n")


def say(message: str, level: str = "INFO", place: str = "fake.py:1") -> None:
    for line in message.split("\n"):
        print(f"(EngineCore pid={os.getpid()}) {level} 11-29 23:46:00 [{place}] {line}", flush=True)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def answer(self, body: str, status: int = 200) -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refused(self) -> bool:
        if KEY and self.path.startswith("/v1/") and self.headers.get("Authorization") != f"Bearer {KEY}":
            self.answer('{"error": "Unauthorized"}', 401)
            return True
        return False

    def do_GET(self) -> None:
        if self.refused():
            return
        if self.path == "/health":
            self.answer("")
        elif self.path == "/version":
            self.answer(json.dumps({"version": "0.32.0"}))
        elif self.path == "/v1/models":
            name = "someone-else/model" if MODE == "wrong-model" else MODEL
            self.answer(json.dumps({"data": [{"id": name, "max_model_len": 16384}]}))
        elif self.path == "/metrics":
            self.answer(
                f'vllm:num_requests_running{{engine="0"}} {running}\n'
                f'vllm:num_requests_waiting{{engine="0"}} {waiting}\n'
                f'vllm:kv_cache_usage_perc{{engine="0"}} {running / SLOTS}\n'
                f'vllm:num_preemptions_total{{engine="0"}} {preemptions}\n'
                f'vllm:prefix_cache_queries_total{{engine="0"}} {served * 100}\n'
                f'vllm:prefix_cache_hits_total{{engine="0"}} {served * 25}\n'
                f'vllm:cache_config_info{{block_size="32",num_gpu_blocks="{BLOCKS}",'
                f'kv_cache_size_tokens="{BLOCKS * 32}"}} 1.0\n'
            )
        else:
            self.answer("", 404)

    def do_POST(self) -> None:
        global running, waiting, preemptions, served
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.refused():
            return
        if body["model"] != MODEL:
            self.answer(json.dumps({"error": {"message": f"The model `{body['model']}` does not exist."}}), 404)
            return
        if MODE == "no-completions":
            self.answer('{"error": {"message": "The model does not support Completions API"}}', 400)
            return
        if MODE == "crash-in-load":
            say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has", "ERROR")
            os._exit(1)
        if MODE == "segfault-in-load":
            os.kill(os.getpid(), signal.SIGSEGV)
        if MODE == "hang-in-load":
            note_pid(os.getpid())  # once more: the load has begun
            time.sleep(600)
        with lock:
            waiting += 1
        with slots:
            with lock:
                waiting -= 1
                running += 1
                preemptions += running > PREEMPT_ABOVE
            time.sleep(SECONDS)
            with lock:
                running -= 1
                served += 1
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}
        self.answer(json.dumps({"choices": [{"text": "x"}], "usage": usage}))


class HTTPServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def option(name: str, default: str = "") -> str:
    return next((word.split("=", 1)[1] for word in sys.argv if word.startswith(f"--{name}=")), default)


MODEL = option("model")


def start_up() -> None:
    say("vLLM server version 0.32.0, serving model " + MODEL)
    arguments = {
        word[2:].split("=", 1)[0].replace("-", "_"): word.split("=", 1)[1] if "=" in word else True
        for word in sys.argv[3:]
    }
    typed = {name: int(text) if str(text).isdigit() else text for name, text in arguments.items()}
    say(f"non-default args: {typed!r}")
    say(f"Initializing a V1 LLM engine (v0.32.0) with config: model='{MODEL}', max_seq_len=16384, dtype=torch.float32")
    if MODE == "half":
        print("(EngineCore pid=1) INFO 11-29 23:4", end="", flush=True)
        time.sleep(600)
    if MODE == "oom":
        say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has", "ERROR")
        sys.exit(1)
    if MODE == "exit":
        sys.exit(3)
    if MODE == "refuse":
        say(
            "ValueError: To serve at least one request with the model's max seq len (16384), (16.00 GiB KV cache is "
            "needed, which is larger than the available KV cache memory (3.97 GiB). Based on the available memory, the "
            "estimated maximum model length is 4064. Try increasing",
            "ERROR",
        )
        print(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}", flush=True
        )
        sys.exit(1)
    if MODE == "refuse-and-hang":
        say("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "ERROR")
        time.sleep(600)
    say("Explicitly set (1.0/10.71) GiB for KV cache on node 0.")
    say(f"Overriding num_gpu_blocks=16384 with num_gpu_blocks_override={BLOCKS}")
    say(
        f"CPU KV cache size: {BLOCKS * 32:,} tokens, Maximum concurrency for 16,384 tokens per request: "
        f"{BLOCKS / 512:.2f}x"
    )


def main() -> None:
    note_pid(os.getpid())
    seen = os.environ.get("VLLM_FAKE_SEEN")
    if seen:
        with open(seen, "w", encoding="utf-8") as file:
            json.dump({"argv": sys.argv[1:], "environ": dict(os.environ), "cwd": os.getcwd()}, file)
    if MODE in ("stubborn", "family"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "family":
        # a worker in the same session, and one that leaves the session and its parent
        sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        note_pid(subprocess.Popen([sys.executable, "-c", sleeper]).pid)
        escape = (
            "import os, subprocess, sys\n"
            f"child = subprocess.Popen([sys.executable, '-c', {sleeper!r}], start_new_session=True)\n"
            "open(os.environ['VLLM_FAKE_PIDS'], 'a').write(f'{child.pid}\\n')\n"
        )
        subprocess.run([sys.executable, "-c", escape], check=True)
    start_up()
    if MODE == "hang":
        time.sleep(600)
    try:
        server = HTTPServer(("127.0.0.1", int(option("port"))), Handler)
    except OSError as error:
        print(f"OSError: [Errno {error.errno}] {error.strerror}", flush=True)
        sys.exit(1)
    say("Application startup complete.")
    server.serve_forever()


if __name__ == "__main__":
    main()
