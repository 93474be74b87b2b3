"""Exit codes. Precedence: INTERNAL over USAGE over FINDINGS over CLEAN; never dependent on the output format."""

from enum import IntEnum


class ExitCode(IntEnum):
    CLEAN = 0  # clean, below --fail-on, or nothing to check
    FINDINGS = 1  # findings at or above --fail-on, a failed gate, a contradicted prediction
    USAGE = 2  # usage, kvgate.yaml, a bad rule file, a named path that does not exist
    INTERNAL = 3  # a rule crashed (the others still ran), or kvgate itself did
