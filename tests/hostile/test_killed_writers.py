"""Whatever happens while a file is saved, there is a whole one, and nothing else was touched."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from killed_writers import forked, fresh, play, temporaries

from attacks import of_long_form
from bsfl import Scheduler
from bsfl.errors import FileInUse

LONGEST_S = 7_300
TOO_SMALL = 4096
"""Bytes of a file that may not grow; a saved scheduler needs more."""


def run(what, folder, count, seed=1):
    """Run a program that kills writers in a process that has no threads."""
    program = Path(__file__).with_name("killed_writers.py")
    command = [sys.executable, program, what, str(folder), str(count), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("what", ["kill", "background"])
def test_a_few_killed_writers_leave_whole_files(what, fast_folder):
    run(what, fast_folder, 8)


@pytest.mark.attack
@pytest.mark.parametrize(("what", "n"), [("kill", 500), ("background", 300)])
def test_many_killed_writers_leave_whole_files(what, n, fast_folder):
    run(what, fast_folder, of_long_form(n), seed=2)


def in_child(work):
    """Run work(pipe) in a forked process, and check that it raises nothing."""
    child, reading = forked(work)
    _, status = os.waitpid(child, 0)
    assert status == 0, os.read(reading, 1000)
    os.close(reading)


@pytest.fixture
def path(fast_folder):
    return fast_folder / "s.bsfl"


def test_a_temporary_file_of_another_user_does_no_harm(path, fast_folder):
    planted = fast_folder / ".s.bsfl.0123456789abcdef.tmp"
    planted.write_text("theirs")
    planted.chmod(0)
    fast_folder.chmod(0o1777)

    def work(pipe):
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        fresh().save(path)

    in_child(work)
    assert Scheduler.load(path).round == 0


@pytest.mark.parametrize("has_saved", [False, True])
@pytest.mark.parametrize("planted", ["fifo", "loop", "out", "dangling", "device"])
def test_what_is_planted_at_the_path_is_replaced(path, fast_folder, planted, has_saved, tmp_path):
    scheduler, victim = fresh(), tmp_path / "victim"
    victim.write_text("precious")
    if has_saved:
        scheduler.save(path)
        path.unlink()
    targets = {"out": victim, "loop": path, "dangling": tmp_path / "no", "device": "/dev/zero"}
    if planted == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(targets[planted])

    def work(pipe):
        try:
            scheduler.save(path)
        except FileInUse:  # it is not what was saved
            assert has_saved
            path.unlink()
            scheduler.save(path)

    in_child(work)
    assert path.is_file()
    assert not path.is_symlink()
    assert Scheduler.load(path).round == 0
    assert victim.read_text() == "precious"
    assert not (tmp_path / "no").exists()
    assert not temporaries(fast_folder)


@pytest.mark.parametrize("wait", [True, False])
def test_files_that_may_not_grow_leave_the_old_one(path, fast_folder, wait):
    scheduler = fresh()
    scheduler.save(path)
    before = path.read_bytes()

    def work(pipe):
        resource.setrlimit(resource.RLIMIT_FSIZE, (TOO_SMALL, TOO_SMALL))
        play(scheduler)
        with pytest.raises(OSError, match="File too large"):
            scheduler.save(path, wait=wait) or scheduler.saved()

    in_child(work)
    assert path.read_bytes() == before
    assert not temporaries(fast_folder)
