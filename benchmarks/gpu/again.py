"""Section `again`: repeats what failed in an earlier run. Rows that lost the GPU run with CUDA_LAUNCH_BLOCKING=1."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from .measure import Report

PARTS = {"together": "correctness"}  # the section whose rows have another name


def again(report, interpret):
    """Run each section with failed rows again, in a separate process and with these rows only."""
    if not report.earlier:
        return report("earlier", value="no earlier run was given with --earlier, so nothing is repeated")
    failed, lost = defaultdict(list), set()
    for line in Path(report.earlier).read_text().splitlines():
        row = json.loads(line) if line.endswith("}") else {}
        if "error" in row and row["section"] not in ("versions", "again"):
            failed[row["section"]].append(row["name"])
            lost |= {row["section"]} if row.get("lost") else set()
    if not failed:
        return report("earlier", value="nothing had failed")
    flags = sys.orig_argv[sys.orig_argv.index("--output") :]
    for name, names in failed.items():
        home = PARTS.get(name, name)
        command = [
            *sys.orig_argv[: sys.orig_argv.index("--section")],
            "--section",
            home,
            "--into",
            report.section,
            "--only",
            json.dumps(names),
            *flags,
        ]
        environment = {**os.environ, **({"CUDA_LAUNCH_BLOCKING": "1"} if name in lost else {})}
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            report(f"{name} again", error=f"exit {done.returncode}: {done.stderr[-800:]}")
    found = Report(report.path, report.section).done
    for name, names in failed.items():
        missing = [n for n in names if n not in found]
        if missing:
            report(f"not repeated of {name}", value=", ".join(missing))
    return None
