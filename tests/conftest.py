# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all tests. Modules of this folder import each other by name, whatever pytest's import mode."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

sys.path.extend(str(folder) for folder in Path(__file__).parent.glob("python/**/"))
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")  # for shard_map on the CPU
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or JAX takes three quarters of the GPU's memory

from cpp_tests import CppTests
from library_under_test import TEST_LIBRARY, THREAD_ORDERS, DeviceArrays, HostArrays

from pyflowk._native import driver as _driver
from pyflowk._native import library as _library

for framework in ("jax", "torch"):  # or a folder of tests would stand for one that is not installed
    if (spec := find_spec(framework)) is not None and spec.origin is None:
        sys.modules[framework] = None  # type: ignore[assignment]


@pytest.fixture(scope="session")
def arrays() -> HostArrays:
    """Makes and fetches the arrays of the library under test."""
    return {"simt": HostArrays, "cuda": DeviceArrays}[TEST_LIBRARY]()


@pytest.fixture(scope="session")
def library(arrays: HostArrays) -> Any:
    """The library under test, by ctypes."""
    return _library.for_device(arrays.device, "the test")


@pytest.fixture
def host_library() -> None:
    """Skips a test of host arrays where there is no library for them."""
    try:
        _library.for_device(None, "x")
    except (TypeError, ImportError) as error:
        pytest.skip(str(error))


@pytest.fixture(params=THREAD_ORDERS)
def thread_order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test in each order in which the executor can start threads: a missing barrier shows in one of them."""
    monkeypatch.setenv("FLOWK_SIMT_THREAD_ORDER", request.param)
    return request.param


# What importorskip() says of a framework that is not installed.
NO_FRAMEWORK = r"could not import '(torch|jax)\b"

_CPP_TESTS = pytest.StashKey[CppTests]()


@pytest.fixture
def cpp_tests(request: pytest.FixtureRequest) -> CppTests:
    """The C++ tests, which run since the session began."""
    return request.config.stash[_CPP_TESTS]


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.collectonly and any(
        "cpp_tests" in getattr(item, "fixturenames", ()) for item in session.items
    ):
        session.config.stash[_CPP_TESTS] = CppTests()


def pytest_unconfigure(config: pytest.Config) -> None:
    if _CPP_TESTS in config.stash:
        config.stash[_CPP_TESTS].stop()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("campaign", "random calls of every function: tests/python/campaign")
    group.addoption("--campaign", type=int, default=9000, metavar="N", help="the number of cases (default: 9000)")
    group.addoption("--campaign-seed", type=int, default=0, metavar="SEED", help="of the first search (default: 0)")
    parser.addoption("--part", default="1/1", metavar="I/N", help="only every N-th test, from the I-th on")
    parser.addoption(
        "--require-frameworks", action="store_true", help="a test that is skipped without PyTorch or JAX fails"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU; skipped without one")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    report = yield
    _fail_without_framework(report, collector.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    _fail_without_framework(report, item.config)
    return report


def _fail_without_framework(report: Any, config: pytest.Config) -> None:
    """With --require-frameworks, a skip for want of PyTorch or JAX is a failure."""
    if report.skipped and config.option.require_frameworks and re.search(NO_FRAMEWORK, str(report.longrepr)):
        report.outcome = "failed"
        report.longrepr = f"--require-frameworks: {report.longrepr}"


@pytest.hookimpl(trylast=True)  # of what -k has left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    first, step = map(int, config.option.part.split("/"))
    items[:] = items[first - 1 :: step]
    items.sort(key=lambda item: "cpp_tests" in getattr(item, "fixturenames", ()))  # the others run while these compile
    if _driver.device_count() == 0:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no GPU"))
