"""A plugin of pytest that stores the processor time of each test in tests/durations.json, to read and to schedule:

    bash tests/run.sh -p tests.durations tests/nn     # updates the files that run, keeps the others

The time is the processor time of the test and of the processes that it started and that ended, so it depends little on
what else the machine does. `python tests/durations.py` prints the sums by file and the slowest functions.
"""

import json
import os
import re
import sys
from pathlib import Path

import pytest

STORED = Path(__file__).with_suffix(".json")


def used():
    """The seconds of processor time that this process and its finished children have used."""
    return sum(os.times()[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    item.user_properties.append(("started", used()))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    if (
        call.when == "teardown"
    ):  # reports carry the properties of their item, also from xdist's workers to the main process
        item.user_properties.append(("ended", used()))


class Sums:
    """Adds the times by file and by function, in the process that receives all reports."""

    def __init__(self):
        self.files = {}

    def pytest_runtest_logreport(self, report):
        times = dict(report.user_properties)
        if report.when == "teardown" and "ended" in times:
            path, _, function = report.nodeid.partition("::")
            tests = self.files.setdefault(path, {}).setdefault(re.split(r"[\[@]", function)[0], [0, 0.0])
            tests[0] += 1
            tests[1] += times["ended"] - times["started"]

    def pytest_sessionfinish(self):
        stored = json.loads(STORED.read_text()) if STORED.exists() else {}
        for path, functions in self.files.items():
            stored[path] = {
                "tests": sum(count for count, _ in functions.values()),
                "seconds": round(sum(time for _, time in functions.values()), 1),
                "functions": {name: round(time, 1) for name, (_, time) in functions.items() if time >= 0.5},
            }
        STORED.write_text(json.dumps(dict(sorted(stored.items())), indent=1) + "\n")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Sums())


def main():
    stored = json.loads(STORED.read_text())
    print(
        f"{sum(file['tests'] for file in stored.values())} tests, {sum(file['seconds'] for file in stored.values()):.0f} s"
    )
    for path, file in sorted(stored.items(), key=lambda entry: -entry[1]["seconds"])[:60]:
        slow = sorted(file["functions"].items(), key=lambda entry: -entry[1])[:3]
        print(f"{file['seconds']:7.1f} s {file['tests']:6} {path}: {', '.join(f'{n} {s}' for n, s in slow)}")


if __name__ == "__main__":
    sys.exit(main())
