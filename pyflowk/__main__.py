# SPDX-License-Identifier: Apache-2.0
"""`python -m pyflowk info` and `python -m pyflowk demo`."""

from __future__ import annotations

import argparse
import sys

from . import __version__
from ._commands.demo import run_demo
from ._commands.info import print_info
from ._native.errors import FlowkError

DESCRIPTION = (
    "flowk: permute, batch transpose, elementwise operations, PReLU and masked softmax at the speed of a plain copy. "
    "These commands check an installation."
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pyflowk", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"pyflowk {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="what is installed, what is found, and what is missing")
    commands.add_parser("demo", help="permute real arrays, check each against NumPy, show its plan and its speed")
    if parser.parse_args().command == "info":
        print_info()
        return 0
    try:
        return 0 if run_demo() else 1
    except (FlowkError, ImportError, MemoryError) as error:
        print(f"the demo cannot run: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
