"""Whatever happens while a file is saved, there is a whole one, and nothing else was touched."""

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from killed_writers import forked, fresh, play, temporaries

from attacks import of_long_form
from bsfl import Scheduler
from bsfl.errors import FileInUse

KILLS, BACKGROUND_KILLS, SAVES_OF_TWO = 500, 300, 300
FEW = 8
LONGEST_S = 7_300
PLANTED = ".s.bsfl.0123456789abcdef.tmp"
"""What a temporary file of s.bsfl may be called."""
TOO_SMALL = 4096
"""Bytes of a disk on which a file does not fit."""


def run(what, folder, count, seed=1):
    """Run a program that kills writers in a process that has no threads."""
    program = Path(__file__).with_name("killed_writers.py")
    command = [sys.executable, program, what, str(folder), str(count), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("what", ["kill", "background", "compete"])
def test_a_few_killed_writers_leave_whole_files(what, fast_folder):
    run(what, fast_folder, FEW)


@pytest.mark.attack
def test_killed_writers_leave_whole_files(fast_folder):
    run("kill", fast_folder, of_long_form(KILLS), seed=2)


@pytest.mark.attack
def test_writers_killed_in_the_background_leave_whole_files(fast_folder):
    run("background", fast_folder, of_long_form(BACKGROUND_KILLS), seed=3)


@pytest.mark.attack
def test_two_writers_are_told_of_each_other(fast_folder):
    run("compete", fast_folder, of_long_form(SAVES_OF_TWO))


@pytest.fixture
def path(fast_folder):
    return fast_folder / "s.bsfl"


def test_planted_links_and_pipes_at_temporary_names_do_no_harm(path, fast_folder):
    victim = fast_folder / "victim"
    victim.write_text("precious")
    plants = [PLANTED.replace("0", digit) for digit in "1234"]
    (fast_folder / plants[0]).symlink_to(victim)
    os.mkfifo(fast_folder / plants[1])
    (fast_folder / plants[2]).mkdir()
    (fast_folder / plants[3]).symlink_to(fast_folder / "nowhere")
    fresh().save(path)
    assert Scheduler.load(path).round == 0
    assert victim.read_text() == "precious"
    assert sorted(temporaries(fast_folder)) == sorted(plants)
    assert not (fast_folder / "nowhere").exists()


def test_a_temporary_file_of_somebody_else_does_no_harm(path, fast_folder):
    planted = fast_folder / PLANTED
    planted.write_text("theirs")
    planted.chmod(0)
    fast_folder.chmod(0o1777)

    def work(pipe):
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        fresh().save(path)

    child, reading = forked(work)
    _, status = os.waitpid(child, 0)
    assert status == 0, os.read(reading, 1000)
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
        except FileInUse:  # it is not what was saved; told, and nothing is written
            assert has_saved
            os.write(pipe, b"told")
            path.unlink()
            scheduler.save(path)

    child, reading = forked(work)
    _, status = os.waitpid(child, 0)
    assert status == 0, os.read(reading, 1000)
    assert path.is_file()
    assert not path.is_symlink()
    assert Scheduler.load(path).round == 0
    assert victim.read_text() == "precious"
    assert not (tmp_path / "no").exists()
    assert not temporaries(fast_folder)


def test_a_link_within_the_folder_is_followed(path, fast_folder):
    path.symlink_to("real.bsfl")
    scheduler = fresh()
    for _ in range(2):
        play(scheduler)
        scheduler.save(path)
    assert path.is_symlink()
    assert Scheduler.load(fast_folder / "real.bsfl").round == 2


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o400])
def test_the_mode_stays(path, mode):
    scheduler = fresh()
    scheduler.save(path)
    path.chmod(mode)
    for wait in (True, False):
        play(scheduler)
        scheduler.save(path, wait=wait)
        scheduler.saved()
        assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("wait", [True, False])
def test_a_folder_at_the_path_is_left_alone(path, fast_folder, wait):
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        save(fresh(), path, wait)
    assert path.is_dir()
    assert not temporaries(fast_folder)


def save(scheduler, path, wait):
    scheduler.save(path, wait=wait)
    scheduler.saved()


@pytest.mark.parametrize("wait", [True, False])
def test_files_that_may_not_grow_leave_the_old_one(path, fast_folder, wait):
    scheduler = fresh()
    scheduler.save(path)
    before = path.read_bytes()

    def work(pipe):
        resource.setrlimit(resource.RLIMIT_FSIZE, (TOO_SMALL, TOO_SMALL))
        play(scheduler)
        with pytest.raises(OSError, match="File too large"):
            save(scheduler, path, wait)

    child, reading = forked(work)
    _, status = os.waitpid(child, 0)
    assert status == 0, os.read(reading, 1000)
    assert path.read_bytes() == before
    assert not temporaries(fast_folder)


@pytest.mark.attack
@pytest.mark.parametrize("wait", [True, False])
def test_a_full_disk_leaves_the_old_file(tmp_path, wait):
    size = f"size={20 * TOO_SMALL}"
    command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(tmp_path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may make a small disk")
    try:
        scheduler, path = Scheduler(cohort_size=1), tmp_path / "s.bsfl"
        scheduler.select(["ann"])
        scheduler.save(path)
        scheduler.join([f"client-{k}" for k in range(50 * TOO_SMALL)])
        with pytest.raises(OSError, match="No space left"):
            save(scheduler, path, wait)
        assert Scheduler.load(path).clients == ["ann"]
        assert not temporaries(tmp_path)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


LAST_WORDS = """
import sys
from bsfl import Scheduler
scheduler = Scheduler(cohort_size=1)
scheduler.select(["ann"])
scheduler.save(sys.argv[1], wait=False)
"""


@pytest.mark.parametrize("name", ["missing/s.bsfl", "."])
def test_a_last_save_that_fails_is_logged_at_the_end(fast_folder, name):
    command = [sys.executable, "-c", LAST_WORDS, str(fast_folder / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert "was not saved: " in done.stderr
    assert "Error" in done.stderr
