#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The counters that explain a permute's speed: `bench/ncu_permute.sh TYPE SHAPE AXES`, as of profile_permute.py.
set -eu
metrics=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed
metrics+=,lts__t_sectors_op_read.sum,lts__t_sectors_op_write.sum,lts__t_requests_srcunit_tex_op_read.sum
metrics+=,lts__t_requests_srcunit_tex_op_write.sum,lts__t_throughput.avg.pct_of_peak_sustained_elapsed
metrics+=,l1tex__data_bank_conflicts_pipe_lsu.sum,l1tex__data_pipe_lsu_wavefronts.sum,l1tex__throughput.avg.pct_of_peak_sustained_elapsed
metrics+=,sm__inst_executed.sum,sm__inst_issued.avg.pct_of_peak_sustained_active,sm__warps_active.avg.pct_of_peak_sustained_active
metrics+=,smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio,smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio
metrics+=,smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio,smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio
metrics+=,smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio,launch__registers_per_thread,launch__occupancy_limit_shared_mem
ncu --clock-control none --kernel-name-base function -k 'regex:copy_rows|copy_shifted|tiled_transpose|two_sided|strided|channels' --metrics "$metrics" \
    python3 "$(dirname "$0")/profile_permute.py" "$@" | grep -vE '^==PROF|^ *-+|^$|Section:' | sed -E 's/ +/ /g'
