"""The script that reads releases, on a small source tree in vLLM's idioms."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".github" / "scripts" / "update_release_tables.py"

CONFIG = '''
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Literal
from pydantic import Field
from vllm.config.utils import config
from vllm.config.kinds import CacheDType, Backend

LIMIT = 4 * 2**10

class Shape(str, Enum):
    WIDE = "wide"
    TALL = "tall"

class Limits(dict):
    pass

@config
class Inner:
    a: int = 1

@config
class Base:
    shared: bool = False

@config
class MainConfig(Base):
    DEFAULT: ClassVar[int] = 7
    model: str = "small"
    length: int | None = None
    share: float = Field(default=0.9, gt=0, le=1)
    number: int = Field(default=DEFAULT, ge=1)
    limit: int = LIMIT
    dtype: CacheDType = "auto"
    open_dtype: CacheDType | str = "auto"
    backend: Backend = "fast"
    inner: Inner = field(default_factory=Inner)
    inner_or_none: "Inner | None" = None
    table: dict[str, Any] = field(default_factory=dict)
    text_or_table: dict[str, Any] | str | None = None
    limits: Limits | None = None
    names: list[str] | None = None
    counts: tuple[int, ...] = ()
    token: bool | str | None = None
    switch: bool | None = None
    shape: Shape = Shape.WIDE
    old: bool = False
    """Deprecated: nothing reads this."""
'''

KINDS = """
from typing import Literal
CacheDType = Literal["auto", "fp8"]
Backend = Literal["fast", "slow", "hidden"]
HIDDEN = "hidden"
"""

ARG_UTILS = """
import argparse
import json
from vllm.config import MainConfig, Shape
from vllm.config.kinds import HIDDEN
from vllm.utils import FlexibleArgumentParser

def human_readable_int(value): ...
def human_readable_int_or_auto(value): ...

def _compute_kwargs(cls):
    if name == "length":
        kwargs["type"] = human_readable_int_or_auto
    elif name in {"limit"}:
        kwargs["type"] = human_readable_int

def get_kwargs(cls): ...

MESSAGE = "--shape is deprecated and will be removed."

@dataclass
class EngineArgs:
    model: str = MainConfig.model
    enable_thing: bool = False

    @staticmethod
    def add_cli_args(parser):
        kwargs = get_kwargs(MainConfig)
        group = parser.add_argument_group(title="Main")
        if not "--help" in sys.argv:
            group.add_argument("--model", **kwargs["model"])
        group.add_argument("--length", "-l", **kwargs["length"])
        group.add_argument("--share", **kwargs["share"])
        group.add_argument("--number", **{**kwargs["number"], "default": None})
        group.add_argument("--limit", **kwargs["limit"])
        group.add_argument("--dtype", **kwargs["dtype"])
        group.add_argument("--open-dtype", **kwargs["open_dtype"])
        kwargs["backend"]["choices"].remove(HIDDEN)
        backend_kwargs = kwargs["backend"]
        backend_kwargs["type"] = lambda s: s.lower().replace("-", "_")
        group.add_argument("--backend", **backend_kwargs)
        group.add_argument("--inner", "-in", **kwargs["inner"])
        group.add_argument("--inner-or-none", **kwargs["inner_or_none"])
        group.add_argument("--table", **kwargs["table"])
        group.add_argument("--text-or-table", **kwargs["text_or_table"])
        group.add_argument("--limits", **kwargs["limits"])
        group.add_argument("--names", **kwargs["names"])
        group.add_argument("--counts", **kwargs["counts"])
        group.add_argument("--token", **kwargs["token"])
        group.add_argument("--switch", **kwargs["switch"])
        group.add_argument("--shape", choices=[f.value for f in Shape], **kwargs["shape"])
        group.add_argument("--old", **kwargs["old"])
        group.add_argument("--shared-thing", **kwargs["shared"])
        group.add_argument("--enable-thing", action=argparse.BooleanOptionalAction, help="If True, do.")
        for flag, type in [("--legacy", str), ("--legacy-switch", bool)]:
            group.add_argument(flag, type=type, help=(f"[DEPRECATED] {flag} goes."), deprecated=True)
        return parser

class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser, async_args_only=False):
        if not async_args_only:
            parser = EngineArgs.add_cli_args(parser)
        parser.add_argument("--quiet", action="store_true", help="Say less.")
        return parser
"""

CLI_ARGS = """
import json
from dataclasses import field
from vllm.config.utils import config
from vllm.engine.arg_utils import AsyncEngineArgs, optional_type

@config
class BaseFrontendArgs:
    adapters: list[str] | None = None

    @classmethod
    def _customize_cli_kwargs(cls, frontend_kwargs):
        frontend_kwargs["adapters"]["type"] = optional_type(str)
        return frontend_kwargs

    @classmethod
    def add_cli_args(cls, parser):
        from vllm.engine.arg_utils import get_kwargs
        frontend_kwargs = get_kwargs(cls)
        frontend_kwargs = cls._customize_cli_kwargs(frontend_kwargs)
        group = parser.add_argument_group(title="Frontend")
        for key, value in frontend_kwargs.items():
            extra_flags = value.pop("flags", [])
            group.add_argument(*extra_flags, f"--{key.replace('_', '-')}", **value)
        return parser

@config
class FrontendArgs(BaseFrontendArgs):
    port: int = 8000
    origins: list[str] = field(default_factory=lambda: ["*"])
    hooks: list[str] = field(default_factory=lambda: [])

    @classmethod
    def _customize_cli_kwargs(cls, frontend_kwargs):
        frontend_kwargs = super()._customize_cli_kwargs(frontend_kwargs)
        frontend_kwargs["origins"]["type"] = json.loads
        del frontend_kwargs["origins"]["nargs"]
        frontend_kwargs["hooks"]["action"] = "append"
        if "nargs" in frontend_kwargs["hooks"]:
            del frontend_kwargs["hooks"]["nargs"]
        return frontend_kwargs

def make_arg_parser(parser):
    parser.add_argument("model_tag", type=str, nargs="?")
    parser.add_argument("--config", help="A file.")
    parser = FrontendArgs.add_cli_args(parser)
    parser = AsyncEngineArgs.add_cli_args(parser)
    return parser
"""

ENVS = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    VLLM_PORT: int | None = None
    VLLM_LEVEL: str = "INFO"
environment_variables: dict = {
    "VLLM_PORT": lambda: None,
    "VLLM_HIDDEN": lambda: None,
}
not_a_variable: int = 1
"""

UTILS = """
class FlexibleArgumentParser:
    def parse_args(self):
        def create_nested_dict(keys, value): ...
"""


def tree(root: Path, version: str, replace: dict[str, str] | None = None) -> None:
    base = root / version / "vllm"
    for name, source in {
        "config/__init__.py": CONFIG,
        "config/kinds.py": KINDS,
        "engine/arg_utils.py": ARG_UTILS,
        "entrypoints/openai/cli_args.py": CLI_ARGS,
        "envs.py": ENVS,
        "utils.py": UTILS,
    }.items():
        text = source
        for old, new in (replace or {}).items():
            text = text.replace(old, new)
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("update_release_tables", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["update_release_tables.py", *arguments])
    assert script.main() == 0


def rows(data: Path) -> dict[str, dict[str, Any]]:
    flags = json.loads((data / "flags.json").read_text(encoding="utf-8"))["flags"]
    return {name: entry["runs"][-1] for name, entry in flags.items()}


def test_every_idiom_is_read(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "0.90.0")
    run(script, monkeypatch, "--fresh", "--sources", str(tmp_path), "--data", str(tmp_path), "0.90.0")
    plain = {name: {k: v for k, v in row.items() if k not in ("first", "last")} for name, row in rows(tmp_path).items()}
    assert plain == {
        "--adapters": {"kind": "str", "many": True, "optional": True},
        "--backend": {"kind": "str", "fold": True, "default": "fast", "choices": ["fast", "slow"]},
        "--config": {"kind": "str"},
        "--counts": {"kind": "int", "many": True, "default": []},
        "--dtype": {"kind": "str", "default": "auto", "choices": ["auto", "fp8"]},
        "--enable-thing": {"kind": "flag", "default": False, "negatable": True},
        "--hooks": {"kind": "str", "append": True, "default": []},
        "--inner": {"kind": "json", "names": ["--inner", "-in"], "dynamic": True},
        "--inner-or-none": {"kind": "json", "optional": True},
        "--legacy": {"kind": "str", "deprecated": True},
        "--legacy-switch": {"kind": "boolean", "deprecated": True},
        "--length": {"kind": "human-int-or-auto", "names": ["--length", "-l"], "optional": True},
        "--limit": {"kind": "human-int", "default": 4096},
        "--limits": {"kind": "json", "optional": True},
        "--model": {"kind": "str", "default": "small"},
        "--names": {"kind": "str", "many": True, "optional": True},
        "--number": {"kind": "int", "bounds": {"ge": 1}},
        "--old": {"kind": "flag", "default": False, "negatable": True, "deprecated": True},
        "--open-dtype": {"kind": "str", "default": "auto", "known": ["auto", "fp8"]},
        "--origins": {"kind": "json", "any": True, "default": ["*"]},
        "--port": {"kind": "int", "default": 8000},
        "--quiet": {"kind": "flag", "default": False},
        "--shape": {"kind": "str", "default": "wide", "choices": ["tall", "wide"], "deprecated": True},
        "--share": {"kind": "float", "default": 0.9, "bounds": {"gt": 0, "le": 1}},
        "--shared-thing": {"kind": "flag", "default": False, "negatable": True},
        "--switch": {"kind": "flag", "negatable": True},
        "--table": {"kind": "json", "default": {}},
        "--text-or-table": {"kind": "json-or-str", "optional": True},
        "--token": {"kind": "str", "bare": True, "optional": True},
    }
    table = json.loads((tmp_path / "flags.json").read_text(encoding="utf-8"))
    assert set(table["parser"]) == {"dotted-keys", "module-ignores-model", "underscores"}
    env = json.loads((tmp_path / "env.json").read_text(encoding="utf-8"))
    assert {name: runs[0]["default"] for name, runs in env["env"].items()} == {
        "VLLM_PORT": "None",
        "VLLM_LEVEL": "'INFO'",
        "VLLM_HIDDEN": None,
    }


def test_a_release_is_added_in_its_place(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {'"--quiet"': '"--silent"', "port: int = 8000": "port: int = 9000"}
    tree(tmp_path, "0.90.0")
    tree(tmp_path, "0.91.0", changed)
    tree(tmp_path, "0.100.0", changed)
    whole, grown = tmp_path / "whole", tmp_path / "grown"
    whole.mkdir()
    grown.mkdir()
    sources = ("--sources", str(tmp_path))
    run(script, monkeypatch, "--fresh", *sources, "--data", str(whole), "0.100.0", "0.90.0", "0.91.0")
    run(script, monkeypatch, "--fresh", *sources, "--data", str(grown), "0.90.0", "0.100.0")
    assert json.loads((grown / "flags.json").read_text(encoding="utf-8"))["releases"] == ["0.90.0", "0.100.0"]
    run(script, monkeypatch, *sources, "--data", str(grown), "0.91.0")
    for name in ("flags.json", "env.json"):
        assert (whole / name).read_bytes() == (grown / name).read_bytes()
    flags = json.loads((whole / "flags.json").read_text(encoding="utf-8"))
    assert flags["releases"] == ["0.90.0", "0.91.0", "0.100.0"]
    assert [(run["first"], run["last"]) for run in flags["flags"]["--quiet"]["runs"]] == [("0.90.0", "0.90.0")]
    assert flags["flags"]["--silent"]["runs"][0]["first"] == "0.91.0"
    assert [(run["first"], run["last"], run["default"]) for run in flags["flags"]["--port"]["runs"]] == [
        ("0.90.0", "0.90.0", 8000),
        ("0.91.0", "0.100.0", 9000),
    ]


def test_the_shipped_tables_survive_reading_and_writing(script: ModuleType) -> None:
    flags = json.loads((script.DATA / "flags.json").read_text(encoding="utf-8"))
    runs = {name: entry["runs"] for name, entry in flags["flags"].items()}
    assert script.compress(script.expand(runs, flags["releases"]), flags["releases"]) == runs
