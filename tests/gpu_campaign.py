# SPDX-License-Identifier: Apache-2.0
"""Everything that only a GPU can show, by one command: `python tests/gpu_campaign.py`. It is made for ten minutes on an
H200 with 16 CPU cores; where there is less time, `--seconds 200 --only REGEX` takes some of its parts, and names those
that did not end. The exit status is 0 if all parts pass.

It needs an installed pyflowk with libflowk (or PYTHONPATH and FLOWK_LIBRARY), pytest, hypothesis, ml_dtypes, torch,
CUPTI (torch brings it) and compute-sanitizer on PATH. hypothesis is pure Python: a machine without a network takes its
wheel and that of sortedcontainers, unpacked, by PYTHONPATH.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
OPERATORS = ("permute", "elementwise", "prelu", "softmax", "cross_entropy")
# The tests that run under compute-sanitizer: files in tests/python/, and pytest's -k. They reach every kernel.
SANITIZED = {
    "permute": (("permute/test_permute.py", "permute/test_permute_convert.py"), "table or cases_of_one_type"),
    "elementwise": (("elementwise/test_elementwise_layouts.py",), "every_layout or table"),
    "prelu": (("prelu/test_prelu.py",), "table"),
    "softmax": (("softmax/test_softmax.py",), "table or gradient_of_every_case or clusters"),
    "softmax_terms": (("softmax/test_softmax_sinks.py",), "(test_results and none) or test_gradients"),
    "softmax_merge": (("softmax/test_softmax_merge.py",), "test_results"),
    "softmax_dbias": (("softmax/test_softmax_dbias.py",), "test_results and float"),
    "cross_entropy": (("cross_entropy/test_cross_entropy.py",), "results_and_gradients or same_bits or shards"),
}
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
# initcheck does not see what bulk copies write: of softmax it runs over rows that are too long for them.
LONG_ROWS = {
    "softmax": "clusters",
    "softmax_terms": "((test_results and none) or test_gradients) and (4096 or 20480 or 70001)",
}
# Runs that are cut into parts, because the whole takes longer than all others.
SANITIZER_PARTS = {
    ("racecheck", "softmax"): 24,
    ("racecheck", "softmax_terms"): 4,
    ("memcheck", "softmax"): 8,
    ("synccheck", "softmax"): 4,
    ("memcheck", "softmax_terms"): 2,
}
TEST_FOLDERS = {
    "permute": 2,
    "elementwise": 4,
    "prelu": 1,
    "softmax": 12,
    "cross_entropy": 1,
    "calls": 2,
    "pytorch": 12,
    "jax": 4,
}  # and the number of their parts
CAMPAIGN_PROCESSES = 6
SEEDS_PER_PROCESS = 10_000
LIMIT_SECONDS = 580


class Part(NamedTuple):
    """A run of pytest that must succeed. `tool` is compute-sanitizer's, "" without it. A skipped test is a failure,
    except with `may_skip`, if two GPUs are needed, and of clusters under synccheck."""

    name: str
    command: tuple[str, ...]
    tool: str = ""
    needs_two_gpus: bool = False
    may_skip: bool = False


class Result(NamedTuple):
    """How a part ended."""

    part: Part
    seconds: float
    passed: bool
    text: str


def pytest_part(name: str, *arguments: str, needs_two_gpus: bool = False) -> Part:
    command = (sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *arguments)
    return Part(name, command, needs_two_gpus=needs_two_gpus)


def sanitizer_part(tool: str, name: str, *part: str) -> Part:
    files, words = SANITIZED[name]
    if tool == "initcheck":
        words = LONG_ROWS.get(name, words)
    tests = pytest_part(" ".join((tool, name, *part)), *(str(ROOT / "tests/python" / file) for file in files))
    command = ("compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *tests.command, "-k", words, *part)
    return tests._replace(command=command, tool=tool)


def all_parts(num_cases: int) -> list[Part]:
    """Slow ones first; but racecheck, which takes longer than all others together, comes last."""
    tests = ROOT / "tests/python"
    sanitizers = [
        sanitizer_part(tool, name, *((f"--part={index + 1}/{count}",) if count > 1 else ()))
        for name in reversed(SANITIZED)
        for tool in TOOLS
        for count in (SANITIZER_PARTS.get((tool, name), 1),)
        for index in range(count)
    ]
    per_process = -(-num_cases // CAMPAIGN_PROCESSES)
    campaigns = [
        pytest_part(
            f"campaign {index + 1} of {CAMPAIGN_PROCESSES}",
            str(tests / "campaign"),
            f"--campaign={per_process}",
            f"--campaign-seed={index * SEEDS_PER_PROCESS}",
        )
        for index in range(CAMPAIGN_PROCESSES)
    ]
    folders = [
        pytest_part(f"tests {name} {i + 1}/{count}", str(tests / name), f"--part={i + 1}/{count}")._replace(
            may_skip=True
        )
        for name, count in TEST_FOLDERS.items()
        for i in range(count)
    ]
    return [
        *campaigns,
        *folders,
        pytest_part("more than 2^31 elements", *map(str, sorted(tests.glob("*/test_large_*.py")))),
        pytest_part(
            "streams, graphs, threads", *(str(tests / f"gpu/test_gpu_{name}.py") for name in ("streams", "threads"))
        ),
        pytest_part("tests examples", str(tests / "test_docstrings.py"))._replace(may_skip=True),
        pytest_part("two GPUs", str(tests / "gpu/test_two_gpus.py"), needs_two_gpus=True),
        *sorted(sanitizers, key=lambda part: part.tool == "racecheck"),
    ]


def run(part: Part, logs: Path, end: float) -> Result:
    """`end` is the time, by time.monotonic(), at which the part is stopped."""
    environment = os.environ | {"FLOWK_TEST_LIBRARY": "cuda", "JAX_PLATFORMS": "cuda"}
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several processes share the GPU's memory
    if "test_large_" in " ".join(part.command):
        environment["FLOWK_TEST_LARGE"] = "1"
    if part.tool:
        environment["FLOWK_TEST_MEMORY"] = "exact"
    if part.tool == "synccheck":
        environment["FLOWK_TEST_CLUSTER_BLOCKS"] = "8"
    start = time.monotonic()
    try:
        done = subprocess.run(
            part.command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=max(end - start, 0)
        )
        code, output = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as stopped:
        code, output = -1, os.fsdecode(stopped.output or b"") + "\nstopped: no time was left"
    except FileNotFoundError as error:
        code, output = -1, str(error)
    (logs / f"{re.sub(r'[^a-z0-9]+', '_', part.name.lower())}.txt").write_text(output)
    passed, text = judged(part, code, output)
    return Result(part, time.monotonic() - start, passed, text)


def judged(part: Part, code: int, output: str) -> tuple[bool, str]:
    """Whether a part passed, and its line in the table."""
    lines = [line for line in output.splitlines() if line.strip()] or [""]
    last = next((line for line in reversed(lines) if not line.startswith("====")), "")
    text = f"{last}; {lines[-1].strip('= ')}" if part.tool else last
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", last)}
    if part.tool == "synccheck" or part.may_skip:
        counts.pop("skipped", None)
    if part.needs_two_gpus and code == 0 and counts.keys() == {"skipped"}:
        return True, "not run: fewer than two GPUs"
    return code == 0 and counts.keys() == {"passed"}, text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000, help="of the campaign (default: 20000)")
    parser.add_argument("--only", default="", metavar="REGEX", help="the parts whose names have a match of it")
    parser.add_argument("--seconds", type=float, default=LIMIT_SECONDS, help=f"for all parts ({LIMIT_SECONDS})")
    parser.add_argument("--jobs", type=int, default=max(2, (os.cpu_count() or 2) - 2), help="parts at a time")
    parser.add_argument("--logs", type=Path, default=ROOT / "build/gpu_campaign", help="a folder for the parts' output")
    options = parser.parse_args()
    options.logs.mkdir(parents=True, exist_ok=True)
    parts = [part for part in all_parts(options.cases) if re.search(options.only, part.name)]
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(run, part, options.logs, start + options.seconds) for part in parts]
        for done in concurrent.futures.as_completed(running):
            result = done.result()
            mark = "ok  " if result.passed else "FAIL"
            print(f"{mark} {result.seconds:5.0f} s  {result.part.name:40} {result.text[:150]}", flush=True)
    failed = [result.part.name for result in (done.result() for done in running) if not result.passed]
    print(f"{len(parts) - len(failed)} of {len(parts)} parts passed in {time.monotonic() - start:.0f} s")
    if failed or not parts:
        sys.exit(f"failed: {', '.join(failed) or 'no part has that name'}; output in {options.logs}")


if __name__ == "__main__":
    main()
