"""A real federation on this machine: a SuperLink, SuperNodes, and nothing of it left behind.

Run as a program it is the watchman of a deployment: it ends what is left if the tests are killed.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

BIN = Path(sys.executable).parent
HERE = Path(__file__).parent
EXAMPLE = HERE.parents[2] / "examples" / "flower-app"
PATIENCE_S = 900.0
"""When a run counts as hanging; none takes longer because the machine is busy."""


class Deployment:
    """Starts Flower's own programs on loopback and stops every process that came of it.

    All that Flower starts inherits FLWR_HOME, a folder of this deployment alone, by which its
    processes are distinguished from all others.
    """

    def __init__(self, folder):
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir()
        self.address = f"127.0.0.1:{free_port()}"
        self.env = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
        }
        connection = (
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{self.address}"\n'
        )
        (self.home / "config.toml").write_text(f"{connection}insecure = true\n")
        self.launched, self.nodes = [], {}

    def __enter__(self):
        self.launch("watchman", sys.executable, __file__, str(os.getpid()), str(self.home))
        return self

    def __exit__(self, *_):
        left = end_all(self.home)
        assert not left, f"still running: {left}"
        for process in self.launched:
            process.wait()

    def processes(self, named):
        """Return the ids of the processes of this deployment whose command holds a word."""
        return [pid for pid, command in processes_of(self.home).items() if named in command]

    def launch(self, name, *command):
        """Start a program in a session of its own; its output goes to a file."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env=self.env,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.launched.append(process)
        return process

    def start_superlink(self, *options):
        """Start the SuperLink and wait until it responds."""
        host, port = self.address.split(":")
        common = ("--insecure", "--disable-runtime-dependency-installation")
        self.launch(
            "superlink", "flower-superlink", *common, "--host", host, "--port", port, *options
        )
        self.wait(lambda: responds(f"http://{self.address}/health"), "the SuperLink")

    def start_nodes(self, configs):
        """Start SuperNodes 0, 1, ... with these configurations."""
        for number, config in enumerate(configs):
            self.start_node(**{"partition": number, "n_partitions": len(configs), **config})

    def start_node(
        self, partition, n_partitions, number=None, program=("flower-supernode",), **config
    ):
        """Start a SuperNode; its number here is its partition by default."""
        settings = {"partition-id": partition, "num-partitions": n_partitions, **config}
        number = partition if number is None else number
        self.nodes[number] = self.launch(
            f"node-{number}",
            *(*program, "--insecure", "--superlink", self.address),
            *("--port", str(free_port())),
            *("--node-config", " ".join(f"{key}={json.dumps(it)}" for key, it in settings.items())),
        )

    def kill_node(self, partition):
        """Kill a SuperNode and everything it started, as a power cut would."""
        node = self.nodes.pop(partition)
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()

    def run(self, app, *options):
        """Start `flwr run` and return it."""
        return self.launch("run", "flwr", "run", str(app), "here", "--stream", *options)

    def wait(self, condition, what):
        """Wait until a condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come\n{self.logs()}"
            time.sleep(0.2)

    def logs(self):
        """Return the end of every log."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.folder.glob("*.log"))
        )


class Probe:
    """The example app, with a server that follows a plan and notes every round."""

    def __init__(self, deployment, strategies, order, *, n_rounds, slow_s, slow_share):
        """Write the app, and the plan: settings by name, names in their order, rounds at a time."""
        folder = deployment.folder
        self.deployment, self.app, self.out = deployment, folder / "app", folder / "rounds"
        self.log, self.process = folder / "run.log", None
        shutil.copytree(EXAMPLE, self.app, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("probe_server.py", "probe_client.py"):
            shutil.copy(HERE / "probe" / part, self.app / "flower_app")
        plan = {"strategies": strategies, "order": order, "n_rounds": n_rounds}
        (folder / "plan.json").write_text(json.dumps({**plan, "out": str(self.out)}))
        config = {"plan": str(folder / "plan.json"), "slow-s": slow_s, "slow-share": slow_share}
        project = (self.app / "pyproject.toml").read_text().partition("[tool.flwr.app.config]")[0]
        project = project.replace(".server_app:", ".probe_server:")
        project = project.replace(".client_app:", ".probe_client:")
        lines = "".join(f"{key} = {json.dumps(it)}\n" for key, it in config.items())
        (self.app / "pyproject.toml").write_text(f"{project}[tool.flwr.app.config]\n{lines}")
        self.out.touch()

    def start(self):
        """Start the app, also after its server was killed."""
        self.process = self.deployment.run(self.app)

    def rounds(self, name=None):
        """Return the rounds that were played so far, of one strategy or all."""
        lines = self.out.read_text().splitlines(keepends=True)
        notes = [json.loads(line) for line in lines if line.endswith("\n")]
        return [note for note in notes if name in (None, note["name"])]

    def finish(self, n_rounds):
        """Wait until so many rounds were played, and return them; fail if the run ends before."""
        self.deployment.wait(
            lambda: len(self.rounds()) >= n_rounds or self.process.poll() is not None,
            f"round {n_rounds}",
        )
        assert len(self.rounds()) >= n_rounds, self.deployment.logs()
        return self.rounds()

    def until(self, condition, what, since=0):
        """Wait for a round of which a condition holds, and return its index."""
        self.deployment.wait(lambda: any(map(condition, self.rounds()[since:])), what)
        return next(n for n, note in enumerate(self.rounds()) if n >= since and condition(note))


def processes_of(home):
    """Return the commands of all processes, but this one, that have this FLWR_HOME, by their ids."""
    mark = f"FLWR_HOME={home}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().decode()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # ended just now, or somebody else's
        if mark in environment:
            found[int(entry.name)] = command
    return found


def end_all(home, patience_s=20.0):
    """Kill the processes of a deployment; return those that are left."""
    deadline = time.monotonic() + patience_s
    while (left := processes_of(home)) and time.monotonic() < deadline:
        for pid in left:
            kill(pid)
        time.sleep(0.2)
    return left


def free_port():
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def responds(url):
    """Return whether a server responds."""
    try:
        with urllib.request.urlopen(url, timeout=2.0):
            return True
    except OSError:
        return False


def kill(pid):
    """Kill a process unless it has just ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    tests, home = int(sys.argv[1]), sys.argv[2]
    while os.getppid() == tests:
        time.sleep(1.0)
    end_all(home)
