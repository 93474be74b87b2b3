"""README.md: its examples are what the commands print, its tables are current, its commands are those of CI."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_generated_parts_are_current() -> None:
    spec = importlib.util.spec_from_file_location("update_readme", ROOT / ".github" / "scripts" / "update_readme.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert README.count("<!-- end -->") == 5
    assert script.generated(README) == README, "run: python .github/scripts/update_readme.py"


def test_ci_runs_the_commands_of_the_readme() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    shells = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    main_job, tests = shells[0].strip(), shells[2].strip()
    assert main_job == "python3 -m pip install . && kvgate check tests/examples/deploy --fail-on never"
    assert tests == "python3 -m pip install --editable '.[dev]' && python3 -m pytest"
    assert main_job in ci
    assert tests in ci


def test_every_link_into_the_repository_leads_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?://|#)([^)]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
