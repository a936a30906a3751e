# SPDX-License-Identifier: Apache-2.0
"""What holds back the slowest cases of permute: `python bench/profile_permute.py SET ... [--worst N] [--below F]`.

Times the sets, or single cases as SET#INDEX, as `python -m pyflowk bench` does, then launches the slowest cases once
each under Nsight Compute (`ncu` in the path) and prints a line of counters for each, over what a copy of the bytes
would need.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
from pathlib import Path

from pyflowk._bench import permute_work, report
from pyflowk._bench.machine import Machine
from pyflowk._bench.measure import geomean
from pyflowk._bench.runner import make_work, run_case
from pyflowk._bench.work import Work, free_memory

KERNELS = "regex:^(copy_.*rows|.*_tile|channels)$"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = [
    "long_scoreboard", "short_scoreboard", "barrier", "mio_throttle", "lg_throttle", "wait", "not_selected",
    "math_pipe_throttle", "no_instruction", "imc_miss", "branch_resolve", "dispatch_stall",
]  # fmt: skip
METRICS = {
    "time": "gpu__time_duration.sum",
    "instructions": "smsp__inst_executed.sum",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "shared_loads": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_stores": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "read_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
    "write_sectors": "lts__t_sectors_srcunit_tex_op_write.sum",
    "read_requests": "lts__t_requests_srcunit_tex_op_read.sum",
    "write_requests": "lts__t_requests_srcunit_tex_op_write.sum",
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
    "registers": "launch__registers_per_thread",
}
LEGEND = """\
issue: % of issue slots used while active; warp%: resident warps; instr: instructions of a warp for 32 destination
chunks of 16 bytes (one a lane); ld, st: wavefronts of shared memory for the same, 4 without conflicts at 16 bytes
an access; cf: of ld, those that conflicts added; l1, l2, dram: % of peak; read, write: L2 sectors, requests and DRAM
bytes over those of a copy (requests of 128 bytes)."""


def work_at(machine: Machine, place: str) -> Work:
    """The case that "SET#INDEX" names."""
    name, index = place.rsplit("#", 1)
    return make_work(machine, "permute", permute_work.SETS.cases_of(name)[int(index)])


def counters_of(places: list[str]) -> list[dict]:
    """One dictionary of counters for each case."""
    metrics = ",".join([*METRICS.values(), *(STALL.format(stall) for stall in STALLS)])
    command = ["ncu", "--clock-control", "none", "--kernel-name-base", "function", "-k", KERNELS]
    command += ["--csv", "--page", "raw", "--print-units", "base", "--metrics", metrics]
    command += [sys.executable, __file__, "--launch", *places]
    output = subprocess.run(command, capture_output=True, text=True).stdout
    lines = output.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        sys.exit(f"no counters: {output[-2000:]}")
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))[1:]  # the first has the units

    def number(row: dict, metric: str) -> float:
        text = (row.get(metric) or "").replace(",", "")
        return float(text) if text else float("nan")

    counters = []
    for row in rows:
        values = {name: number(row, metric) for name, metric in METRICS.items()}
        values["kernel"] = row["Kernel Name"]
        values["stalls"] = {stall: number(row, STALL.format(stall)) for stall in STALLS}
        counters.append(values)
    return counters


def line_of(row: dict) -> str:
    c, read, written = row["counters"], row["read_bytes"], row["written_bytes"]
    warps = written / 16 / 32
    stalls = sorted(c["stalls"].items(), key=lambda item: -item[1])[:3]
    shape = f"{row['types']} {row['shape']}"
    tile = next((line.strip() for line in row["plan"].splitlines() if line.strip().startswith("tile:")), "")
    return (
        f"{row['fractions']['flowk']:.2f} {row['copy_us']:5.0f}us {shape:40} {c['kernel']:20} issue {c['issue']:3.0f} "
        f"warp% {c['warps']:3.0f} reg {c['registers']:3.0f} instr {c['instructions'] / warps:5.0f} "
        f"ld {c['shared_loads'] / warps:5.1f} cf {c['conflicts'] / warps:5.1f} st {c['shared_stores'] / warps:5.1f} "
        f"l1 {c['l1']:3.0f} l2 {c['l2']:3.0f} dram {c['dram']:3.0f} "
        f"read {c['read_sectors'] * 32 / read:.2f}/{c['read_requests'] * 128 / read:.2f}/{c['dram_read'] / read:.2f} "
        f"write {c['write_sectors'] * 32 / written:.2f}/{c['write_requests'] * 128 / written:.2f}"
        f"/{c['dram_write'] / written:.2f} "
        + " ".join(f"{name}={value:.1f}" for name, value in stalls)
        + f"\n     {tile}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--worst", type=int, default=10, help="how many of a set")
    parser.add_argument("--below", type=float, default=1, help="only cases below this fraction of copy")
    parser.add_argument("--json")
    parser.add_argument("--launch", nargs="*", help="only launch these cases, SET#INDEX")
    options = parser.parse_args()
    machine = Machine()
    if options.launch:
        for place in options.launch:
            work_at(machine, place).run(0)
        machine.synchronize()
        return
    slow = []
    for given in options.sets:
        name, _, wanted = given.partition("#")
        rows = []
        for index in range(len(permute_work.SETS.cases_of(name))):
            if wanted and int(wanted) != index:
                continue
            row = run_case(machine, work_at(machine, f"{name}#{index}"), rounds=5)
            free_memory()
            print(report.line_of(row), flush=True)
            rows.append(row | {"place": f"{name}#{index}"})
        fractions = [row["fractions"]["flowk"] for row in rows if row["right"]]
        print(f"== {given}: geomean {geomean(fractions):.3f}, worst {min(fractions, default=0):.3f}", flush=True)
        rows = sorted((row for row in rows if row["right"]), key=lambda row: row["fractions"]["flowk"])[: options.worst]
        slow += [row for row in rows if row["fractions"]["flowk"] < options.below]
    for row, counters in zip(slow, counters_of([row["place"] for row in slow]), strict=True):
        row["counters"] = counters
    print(LEGEND)
    for row in slow:
        print(line_of(row))
    if options.json:
        Path(options.json).write_text(json.dumps(slow))


if __name__ == "__main__":
    main()
