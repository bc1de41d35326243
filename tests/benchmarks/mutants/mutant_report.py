"""A plugin of pytest that tells `run.py` which test failed first: a line for each start and each failure, in the file MUTANT_REPORT."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class Report:
    """Writes as it goes, so that the last line names the test that ended the process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, event: str, name: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{event}\t{name}\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.write("started", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.write("failed", report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.write("failed", f"{report.nodeid} (while it was collected)")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the report, but not in workers, whose results their controller reports."""
    path = os.environ.get("MUTANT_REPORT")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Report(Path(path)), "first_failures")
