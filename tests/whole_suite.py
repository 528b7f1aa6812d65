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
LOWER_BOUNDS = "tests/lower_bounds.py"
DEPLOYMENTS = "tests/integrations"
N_DEPLOYMENTS = "3"
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


def run_side_by_side(parts):
    """Run parts, print each log whole, the last part's last, and return 1 if any failed."""
    for part in parts:
        part.start()
    for part in parts:
        part.print_log()
    print()
    for part in parts:
        outcome = "FAILED" if part.status else "passed"
        print(f"{part.name:12} {outcome} in {part.duration_s:5.0f} s: {part.closing_line}")
    print(parts[-1].closing_line, flush=True)
    return max(part.status for part in parts)


def main(arguments):
    """Run everything; return the exit code."""
    print("each part is shown when it has ended: checks, lower bounds, deployments, tests")
    n_workers = str(min(os.cpu_count() or 1, MOST_WORKERS))
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder)
        return run_side_by_side(
            [
                Part("checks", *CHECKS, log=logs / "checks"),
                Part("lower bounds", [sys.executable, LOWER_BOUNDS], log=logs / "bounds"),
                Part(
                    "deployments",
                    [*PYTEST, "-n", N_DEPLOYMENTS, "-m", "process", DEPLOYMENTS, *arguments],
                    log=logs / "deployments",
                ),
                Part(
                    "tests",
                    [*PYTEST, "-n", n_workers, "-m", "not process", *arguments],
                    log=logs / "tests",
                ),
            ]
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
