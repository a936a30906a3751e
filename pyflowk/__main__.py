# SPDX-License-Identifier: Apache-2.0
"""`python -m pyflowk info`, `demo`, `bench` and `tune`; `--cflags`, `--libs`, ... for the build of a C or C++ program.

Without a command or an option it is `info`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import textwrap
from collections.abc import Callable
from importlib import import_module
from typing import Any

from . import __version__, _linking
from ._commands.demo import run_demo
from ._commands.info import print_info
from ._native.errors import FlowkError

DESCRIPTION = (
    "flowk: permute, batch transpose, elementwise operations, PReLU, masked softmax and cross-entropy at the speed of "
    "a plain copy. "
    "The commands check an installation; the options print what a C or C++ program needs: "
    "cc main.c $(python -m pyflowk --cflags --libs)"
)
INFO_EXAMPLES = """examples:
  python -m pyflowk info
  FLOWK_LIBRARY=build/cuda python -m pyflowk info     which libraries this setting finds
"""
DEMO = "Permutes real arrays, checks each against NumPy, and shows its speed on a GPU."
DEMO_EXAMPLES = """examples:
  python -m pyflowk demo
  python -m pyflowk demo --verbose                    with the plan of each call
  FLOWK_LIBRARY=simt python -m pyflowk demo           on the CPU, whatever is installed
"""
EXAMPLES = """examples:
  python -m pyflowk                                   what is installed, and what is missing
  python -m pyflowk demo --verbose                    four permutes, checked, with their plans
  python -m pyflowk bench permute f16 32x512x16x64 0,2,1,3
  cc main.c $(python -m pyflowk --cflags --libs)
"""


def main() -> int:
    """The exit status. If the reader of a pipe has gone (`... | head`), it is as if SIGPIPE had ended the program."""
    try:
        try:
            return _run()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 128 + signal.SIGPIPE


def _run() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pyflowk",
        description=textwrap.fill(DESCRIPTION, 80, break_on_hyphens=False),
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pyflowk {__version__}")
    printed = parser.add_argument_group("for C and C++ programs")
    printed.add_argument("--cflags", action="store_true", help="the compiler's flags")
    printed.add_argument("--libs", action="store_true", help="the linker's: libflowk, or without it libflowk_simt")
    printed.add_argument("--simt", action="store_true", help="libflowk_simt for --libs, whatever is installed")
    printed.add_argument("--cmakedir", action="store_true", help="the folder for -Dflowk_DIR=")
    printed.add_argument("--pkgconfigdir", action="store_true", help="the folder for PKG_CONFIG_PATH")
    commands = parser.add_subparsers(dest="command")
    raw: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    info_text, demo_text = "what is installed, what is found, and what is missing", "four permutes, checked and timed"
    commands.add_parser("info", help=info_text, description=info_text, epilog=INFO_EXAMPLES, **raw)
    demo = commands.add_parser("demo", help=demo_text, description=DEMO, epilog=DEMO_EXAMPLES, **raw)
    demo.add_argument("--verbose", action="store_true", help="the plan of each call too")
    bench_parser = commands.add_parser("bench", help="speed on this GPU, relative to a copy and to other libraries")
    tune_parser = commands.add_parser("tune", help="measure the plans of permutes and keep the fastest in a file")
    # Their modules are loaded for them alone.
    if "bench" in sys.argv[1:2]:
        bench = import_module("pyflowk._commands.bench")
        bench.add_arguments(bench_parser)
    if "tune" in sys.argv[1:2]:
        tune = import_module("pyflowk._commands.tune")
        tune.add_arguments(tune_parser)
    arguments = parser.parse_args()
    values: dict[str, Callable[[], str]] = {
        "cflags": _linking.compiler_flags,
        "libs": lambda: _linking.linker_flags(arguments.simt),
        "cmakedir": lambda: _linking.config_folder("cmake/flowk"),
        "pkgconfigdir": lambda: _linking.config_folder("pkgconfig"),
    }
    wanted = [name for name in values if getattr(arguments, name)]
    if wanted and arguments.command:
        parser.error("name one command, or options such as --cflags")
    if arguments.simt and not arguments.libs:
        parser.error("--simt needs --libs")
    if wanted:
        try:
            print(*(values[name]() for name in wanted))
        except (FlowkError, ImportError) as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    if arguments.command in (None, "info"):
        print_info()
        return 0
    try:
        if arguments.command == "bench":
            return int(bench.run_bench(arguments))
        if arguments.command == "tune":
            return int(tune.run_tune(arguments))
        return 0 if run_demo(verbose=arguments.verbose) else 1
    except BrokenPipeError:
        raise
    except (FlowkError, ImportError, MemoryError, ValueError, OSError) as error:
        print(f"the {arguments.command} cannot run: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
