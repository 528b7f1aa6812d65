"""Run every check and every test, what waits beside what computes: `./run test all`.

Each part writes into a log of its own, which is printed whole when the part has ended; the tests
come last, so that pytest's closing line is the last one. Arguments are for pytest, in all parts.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTEST = ["pytest", "--durations=20"]
N_DEPLOYMENTS = 3
"""How many Flower deployments run at a time: each waits for its programs most of the time."""
MOST_WORKERS = 8
CHECKS = [
    ["ruff", "format", "--check", "."],
    ["ruff", "check", "."],
    ["mypy"],
    ["lint-imports"],
]


class Part(threading.Thread):
    """Commands that run one after another, beside the other parts.

    Attributes:
        status: 0 if all commands passed.
        closing_line: The last line of the output.
    """

    def __init__(self, name, *commands, log):
        super().__init__(name=name, daemon=True)
        self.commands, self.log = commands, log
        self.status, self.duration_s, self.closing_line = 1, 0.0, ""

    def run(self):
        """Run all commands, also after one has failed."""
        start, status = time.monotonic(), 0
        with self.log.open("wb") as log:
            for command in self.commands:
                shown = " ".join(map(str, command))
                log.write(f"+ {shown}\n".encode())
                log.flush()
                done = subprocess.run(
                    command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
                status |= int(done.returncode != 0)
        self.status, self.duration_s = status, time.monotonic() - start

    def print_log(self):
        """Wait for the end and print everything."""
        self.join()
        text = self.log.read_text("utf-8", errors="replace").rstrip()
        self.closing_line = text.rpartition("\n")[2]
        print(f"\n{'-' * 20} {self.name} {'-' * 20}\n{text}", flush=True)


def main(arguments):
    """Run the parts, print their logs, and return 1 if any of them failed."""
    print("running checks, deployments, lower bounds and tests; each is shown when it ends")
    n_workers = str(min(os.cpu_count() or 1, MOST_WORKERS))
    tests = [*PYTEST, "-n", n_workers, "-m", "not process", *arguments]
    deployments = [*PYTEST, "-n", str(N_DEPLOYMENTS), "-m", "process", *arguments]
    bounds = [sys.executable, "tests/lower_bounds.py"]
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder)
        parts = [
            Part("deployments", deployments, log=logs / "deployments"),
            Part("checks", *CHECKS, log=logs / "checks"),
            Part("lower bounds", bounds, log=logs / "bounds"),
            Part("tests", tests, log=logs / "tests"),
        ]
        for part in parts:
            part.start()
        for part in sorted(parts, key=lambda part: part.name == "tests"):
            part.print_log()
    print()
    for part in parts:
        outcome = "FAILED" if part.status else "passed"
        print(f"{part.name:12} {outcome} in {part.duration_s:5.0f} s: {part.closing_line}")
    print(parts[-1].closing_line)
    return max(part.status for part in parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
