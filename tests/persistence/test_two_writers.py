"""Two schedulers that save one file, and saves that fail when the program ends."""

import subprocess
import sys

import pytest

from bsfl import Scheduler, UniformRandom
from bsfl.errors import FileInUse


def met(ids="abc"):
    scheduler = Scheduler(UniformRandom(), cohort_size=1)
    scheduler.select(list(ids))
    return scheduler


def test_a_second_writer_is_told(tmp_path):
    path = tmp_path / "s"
    first = met()
    first.save(path)
    second = Scheduler.load(path)
    first.select()
    first.save(path)
    second.select()
    second.select()
    with pytest.raises(FileInUse, match="was written by another scheduler since"):
        second.save(path)
    second.save(path, wait=False)
    with pytest.raises(FileInUse):
        second.saved()
    second.save(tmp_path / "elsewhere")
    first.save(path)
    assert Scheduler.load(path).round == 2
    path.unlink()
    second.save(path)
    assert Scheduler.load(path).round == 3, "a file that is gone may be written again"
    met("xyz").save(path)  # a new scheduler takes a file over once
    with pytest.raises(FileInUse):
        second.save(path)


SAVE_AND_WAIT = """
import sys
from bsfl import Scheduler
scheduler = Scheduler(cohort_size=1)
scheduler.join(["a", "b"])
scheduler.save(sys.argv[1])
print("saved", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_process_that_still_runs_is_named_at_load_and_rejects_a_first_save(tmp_path, caplog):
    path, pipe = tmp_path / "s", subprocess.PIPE
    command = [sys.executable, "-c", SAVE_AND_WAIT, path]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        try:
            assert other.stdout.readline() == "saved\n"
            with pytest.raises(FileInUse, match=f"belongs to process {other.pid} on host"):
                met().save(path)
            assert not caplog.records
            loaded = Scheduler.load(path)
            assert f"saved by process {other.pid} on host" in caplog.text
            assert [r.levelname for r in caplog.records] == ["WARNING"]
            loaded.save(path)  # the loaded one continues
        finally:
            other.kill()
    caplog.clear()
    met().save(path)
    Scheduler.load(path)
    assert not caplog.records


def test_a_failed_background_save_is_seen_when_the_program_ends(tmp_path):
    code = (
        "import atexit, sys\n"
        "from bsfl import Scheduler\n"
        "atexit.register(print, 'last words')\n"
        "scheduler = Scheduler(cohort_size=1)\n"
        "scheduler.join(['a', 'b'])\n"
        "scheduler.save(sys.argv[1], wait=False)\n"
    )
    bad = tmp_path / "no" / "such" / "folder"
    run = subprocess.run([sys.executable, "-c", code, bad], capture_output=True, text=True)
    assert f"{bad} was not saved: FileNotFoundError" in run.stderr
    assert "last words" in run.stdout, "other exit handlers run, too"
    good = subprocess.run([sys.executable, "-c", code, tmp_path / "s"], capture_output=True)
    assert (good.returncode, good.stderr) == (0, b"")
