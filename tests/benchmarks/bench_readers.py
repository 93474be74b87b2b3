"""Time the readers of manifests over a folder, beside libyaml and yamllint over the same files.

    python tests/benchmarks/bench_readers.py FOLDER [--yamllint PROGRAM] [--rounds N] [--profile]

Each figure is the best of several rounds. ``read`` collects the files and reads every server in one run, as ``kvgate
check`` does before it predicts; ``parse`` is kvgate's YAML tree with its positions alone. libyaml (PyYAML's C loader)
only makes events, and stops at the first error of a file; that is less than any tool can do with YAML.
Aims: at most 10 times libyaml, at most 0.2 times yamllint, over the YAML files of a folder. Templates of YAML are
counted apart: the others stop at their first braces.
"""

from __future__ import annotations

import argparse
import gc
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from kvgate.manifests.collect import collect
from kvgate.manifests.formats import format_of
from kvgate.manifests.read import read_tree
from kvgate.source.text import SourceFile
from kvgate.source.yaml_tree import is_go_template, parse_yaml

# yamllint reports what its rules find; with these it still scans, parses and walks every token and line
_CONFIG = "{extends: default, yaml-files: ['*']}"


def seconds(work: Callable[[], object], rounds: int) -> float:
    """Processor time of the best round, that of finished child processes included."""
    best = float("inf")
    for _ in range(rounds):
        start = _spent()
        work()
        best = min(best, _spent() - start)
    return best


def _spent() -> float:
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def libyaml(files: Sequence[SourceFile]) -> None:
    for file in files:
        try:
            for _ in yaml.parse(file.text, Loader=yaml.CSafeLoader):
                pass
        except yaml.YAMLError:
            continue


def kind_of(file: SourceFile) -> str:
    if format_of(file.path, file.text) != "yaml":
        return "scripts and code"
    try:
        for _ in yaml.parse(file.text, Loader=yaml.CSafeLoader):
            pass
    except yaml.YAMLError:
        return "templates"
    return "templates" if is_go_template(file.text) else "YAML"


def yamllint(program: str, files: Sequence[SourceFile], rounds: int) -> float:
    """Seconds of yamllint over copies of the files, without those of its start."""
    with TemporaryDirectory() as folder:
        for number, file in enumerate(files):
            (Path(folder) / f"{number}.yaml").write_bytes(file.text.encode())
        (Path(folder) / "empty").mkdir()

        def run(place: str) -> None:
            subprocess.run([program, "-d", _CONFIG, place], capture_output=True, check=False, cwd=folder)

        return seconds(lambda: run("."), rounds) - seconds(lambda: run("empty"), rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--yamllint", metavar="PROGRAM", help="time it too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="where the time of reading goes")
    options = parser.parse_args()
    gc.set_threshold(100_000, 20, 20)  # as the command line does
    collection = collect([options.folder], options.folder)
    kinds: dict[str, list[SourceFile]] = {}
    for file in collection.files:
        kinds.setdefault(kind_of(file), []).append(file)
    root = options.folder
    for kind, files in sorted(kinds.items(), reverse=True):
        print(f"{kind}: {len(files)} files, {sum(len(file.text) for file in files) / 1e6:.2f} MB")
        works: dict[str, Callable[[Sequence[SourceFile]], object]] = {"read": lambda files: read_tree(files, root)}
        if kind == "YAML":
            works |= {"parse": lambda files: [parse_yaml(file) for file in files], "libyaml": libyaml}
        for name, work in works.items():
            print(f"  {name:8} {seconds(partial(work, files), options.rounds) * 1000:8.1f} ms")
        if kind == "YAML" and options.yamllint:
            print(f"  yamllint {yamllint(options.yamllint, files, 1) * 1000:8.1f} ms")
    whole = seconds(lambda: read_tree(collect([root], root).files, root), options.rounds)
    print(f"all in one run, from the disk: {whole * 1000:.1f} ms")
    if options.profile:
        import cProfile
        import pstats

        with cProfile.Profile() as profile:
            read_tree(collection.files, root)
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(40)


if __name__ == "__main__":
    main()
