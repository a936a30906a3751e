# SPDX-License-Identifier: Apache-2.0
"""One launch of one case, for a profiler: `ncu ... python bench/profile_permute.py f32 8191x8193 1,0`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import harness


def main() -> None:
    kind, shape, axes = sys.argv[1], [int(s) for s in sys.argv[2].split("x")], [int(a) for a in sys.argv[3].split(",")]
    library = harness.Library()
    dtype, code = harness.DTYPES[kind]
    x = harness.random_tensor(shape, dtype)
    out = torch.empty([shape[a] for a in axes], dtype=dtype, device="cuda")
    arguments = library.permute_arguments(x, axes, out, code)
    print(library.explain(arguments))
    torch.cuda.synchronize()
    library.permute(arguments)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
