"""The artefact is tested, not the checkout: wheel and sdist carry the rules, and a fresh environment can use them."""

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RULES = sorted(path.name for path in (ROOT / "rules").glob("*.yaml"))

pytestmark = pytest.mark.packaging


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from the sdist, and the sdist."""
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    return target


def test_the_sdist_holds_rules_tests_and_documents(distributions: Path) -> None:
    (archive,) = distributions.glob("*.tar.gz")
    with tarfile.open(archive) as stream:
        names = {name.split("/", 1)[1] for name in stream.getnames() if "/" in name}
    assert RULES
    assert {f"rules/{name}" for name in RULES} <= names
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "tests/examples/deploy/rag-chat.yaml"} <= names


def test_the_wheel_holds_rules_data_and_types(distributions: Path) -> None:
    (archive,) = distributions.glob("*.whl")
    with zipfile.ZipFile(archive) as stream:
        names = set(stream.namelist())
    assert {f"kvgate/_rules/{name}" for name in RULES} <= names
    assert "kvgate/py.typed" in names
    assert "kvgate/schemas/kvgate.config-1.json" in names
    assert not any(name.startswith(("tests/", "rules/")) for name in names)


def test_a_fresh_environment_finds_the_fault_of_the_example(distributions: Path, tmp_path: Path) -> None:
    (archive,) = distributions.glob("*.whl")
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    scripts = home / ("Scripts" if os.name == "nt" else "bin")
    install = subprocess.run(
        [scripts / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(archive)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert install.returncode == 0, install.stderr
    result = subprocess.run(
        [scripts / "kvgate", "check", str(ROOT / "tests" / "examples" / "deploy"), "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=tmp_path,
    )
    assert result.returncode == 1, result.stderr
    rules = {finding["rule"] for finding in json.loads(result.stdout)["findings"]}
    assert "peak-concurrency-exceeds-kv-cache" in rules
