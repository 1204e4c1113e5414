"""Tries hostile bytes on every target of `tests/fuzz`, many more than the tests do, and reports what it came to.

Run as `make fuzz`, or `python scripts/fuzz.py [--plain] [--cases N] [--seconds S] [TARGET...]`. With atheris (`pip
install atheris`; it is no dependency of ours) the search is guided by coverage: what reaches new code is kept and
changed further. Without it, or with `--plain`, the cases of the tests go on to higher numbers. Each target runs in a
process of its own, so that one that dies is told about too. What is found is kept below `build/fuzz`.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

CASES: Final = 200_000
SECONDS: Final = 300
CASE_SECONDS: Final = 20
GRACE_SECONDS: Final = 120
MAX_MEGABYTES: Final = 2_048
FOUND: Final = ROOT / "build" / "fuzz"
GUIDED: Final = "--guided"
ALONE: Final = "--alone"
TOLD_LINES: Final = 25
RAISED: Final = "=== Uncaught Python exception: ==="
_DONE: Final = re.compile(r"Done (\d+) runs in (\d+) second")
_AT: Final = re.compile(r"^#(\d+)\s.*?(?:exec/s: (\d+))?", re.MULTILINE)
_COVERED: Final = re.compile(r"\bcov: (\d+)")


@dataclass(frozen=True, slots=True)
class Report:
    """What the search at one target came to; `told` is empty if nothing was found."""

    target: str
    cases: int
    seconds: float
    covered: int
    told: str

    def __str__(self) -> str:
        rate = self.cases / self.seconds if self.seconds else 0
        end = "FOUND SOMETHING" if self.told else "nothing found"
        covered = f", {self.covered} places reached" if self.covered else ""
        return f"{self.target:10} {self.cases:>9,} cases {rate:>8,.0f}/s{covered}: {end}"


def main(arguments: list[str]) -> int:
    """Search at the targets and print what came of it; return 1 if anything was found."""
    parser = argparse.ArgumentParser(description="Try hostile bytes on every target.")
    parser.add_argument("targets", nargs="*", help="names of targets; all of them without any")
    parser.add_argument("--cases", type=int, default=CASES, help="most cases for each target")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="most seconds for each target")
    parser.add_argument("--plain", action="store_true", help="do not look at what is reached: many more cases")
    options = parser.parse_args(arguments)
    known = import_module("tests.fuzz.registry").TARGETS
    names = options.targets or list(known)
    if strangers := [name for name in names if name not in known]:
        parser.error(f"there is no target {strangers[0]!r}; there are {', '.join(known)}")
    has_atheris = importlib.util.find_spec("atheris") is not None
    is_guided = has_atheris and not options.plain
    _say(f"{len(names)} targets, {'' if is_guided else 'not '}guided by coverage")
    if not has_atheris:
        _say("atheris is not installed; with it (pip install atheris) the search finds its way deeper")
    reports = []
    for name in names:
        reports.append(_searched(name, options.cases, options.seconds, is_guided=is_guided))
        _say(str(reports[-1]))
    found = [report for report in reports if report.told]
    for report in found:
        _say(f"\n{report.target}:\n{report.told}")
    _say(f"\n{sum(report.cases for report in reports):,} cases, {len(found)} findings")
    return 1 if found else 0


def _searched(name: str, cases: int, seconds: int, *, is_guided: bool) -> Report:
    folder = FOUND / name
    folder.mkdir(parents=True, exist_ok=True)
    way = GUIDED if is_guided else ALONE
    command = [sys.executable, __file__, way, name, str(cases), str(seconds), str(folder)]
    begin = time.monotonic()
    try:
        ended = subprocess.run(command, capture_output=True, timeout=seconds + GRACE_SECONDS, check=False)
        output, is_good = (ended.stdout + ended.stderr).decode("utf-8", "replace"), ended.returncode == 0
    except subprocess.TimeoutExpired as exc:
        output, is_good = f"{(exc.stderr or b'').decode('utf-8', 'replace')}\nit did not end in time", False
    done = _DONE.findall(output)
    numbers = [int(number) for number, _ in _AT.findall(output)]
    covered = _COVERED.findall(output)
    return Report(
        name,
        cases=int(done[-1][0]) if done else max(numbers, default=0),
        seconds=time.monotonic() - begin,
        covered=int(covered[-1]) if covered else 0,
        told="" if is_good else _told(output),
    )


def _told(output: str) -> str:
    """Return what was raised, or what was said last by a process that died of something else."""
    before, found, raised = output.partition(RAISED)
    return "\n".join(raised.splitlines()[:TOLD_LINES] if found else before.splitlines()[-TOLD_LINES:]).strip()


def _guided(name: str, cases: str, seconds: str, folder: str) -> None:
    """Search at one target with atheris; it ends the process by itself."""
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["harken"], enable_loader_override=False):
        target = import_module("tests.fuzz.registry").TARGETS[name]
    mutating, tried = import_module("tests.fuzz.mutating"), import_module("tests.fuzz.campaign").tried
    mutator = mutating.Mutator(target.seeds(), target.tokens, target.most_bytes)
    own, every = mutating.Chance(0), 2

    def changed(data: bytes, most: int, seed: int) -> bytes:
        if seed % every:
            return bytes(atheris.Mutate(data, most))
        own.seed(seed)
        return bytes(mutator.changed(data, own)[:most])

    with tempfile.TemporaryDirectory() as kept, target.opened() as judge:
        for number, seed in enumerate(target.seeds()):
            (Path(kept) / f"seed-{number}").write_bytes(seed)

        def run(data: bytes) -> None:
            error, _ = tried(judge, data)
            if error is not None:
                raise error

        options = [f"-runs={cases}", f"-max_total_time={seconds}", f"-timeout={CASE_SECONDS}"]
        limits = [f"-rss_limit_mb={MAX_MEGABYTES}", f"-max_len={target.most_bytes}", f"-artifact_prefix={folder}/"]
        atheris.Setup([__file__, *options, *limits, "-seed=1", kept], run, custom_mutator=changed)
        atheris.Fuzz()


def _alone(name: str, cases: str, seconds: str, folder: str) -> int:
    """Search at one target without knowing what is reached."""
    target = import_module("tests.fuzz.registry").TARGETS[name]
    outcome = import_module("tests.fuzz.campaign").search(target, int(cases), float(seconds))
    _say(f"Done {outcome.cases} runs in {outcome.seconds:.0f} second(s)\n{dict(outcome.ends)}")
    if outcome.finding is None:
        return 0
    (Path(folder) / "smallest").write_bytes(outcome.finding.data)
    _say(str(outcome.finding))
    return 1


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == [GUIDED]:
        _guided(*sys.argv[2:6])
    else:
        sys.exit(_alone(*sys.argv[2:6]) if sys.argv[1:2] == [ALONE] else main(sys.argv[1:]))
