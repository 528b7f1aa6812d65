"""Files that take the place of others: whole, with their mode, and only where they should."""

import os
import subprocess
import sys
import threading

import pytest

from bsfl import Scheduler, UniformRandom
from bsfl.errors import FileInUse
from bsfl.files import replace_file

needs_posix = pytest.mark.skipif(os.name != "posix", reason="links and modes of POSIX")


def temporary_files(folder):
    return [p.name for p in folder.iterdir() if p.name.endswith(".tmp")]


@needs_posix
def test_mode_stays_and_a_new_file_gets_the_usual_one(tmp_path):
    path = tmp_path / "s"
    path.write_bytes(b"old")
    path.chmod(0o600)
    replace_file(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
    (tmp_path / "plain").write_bytes(b"")
    replace_file(tmp_path / "fresh", b"new")
    assert (tmp_path / "fresh").stat().st_mode == (tmp_path / "plain").stat().st_mode


@needs_posix
def test_a_link_is_followed_within_its_folder_only(tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.write_bytes(b"precious")
    (inside / "there").symlink_to(outside)
    replace_file(inside / "there", b"mine")
    assert outside.read_bytes() == b"precious"
    assert (inside / "there").read_bytes() == b"mine"
    assert not (inside / "there").is_symlink()
    (inside / "real").write_bytes(b"old")
    (inside / "alias").symlink_to(inside / "real")
    replace_file(inside / "alias", b"new")
    assert (inside / "real").read_bytes() == b"new"
    assert (inside / "alias").is_symlink()


@needs_posix
def test_planted_files_do_no_harm(tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    (tmp_path / ".s.tmp").symlink_to(target)
    os.mkfifo(tmp_path / f".s.{'0' * 16}.tmp")
    (tmp_path / f".s.{'1' * 16}.tmp").symlink_to(target)
    replace_file(tmp_path / "s", b"new")  # a FIFO would hold it up for ever
    assert target.read_bytes() == b"precious"
    assert (tmp_path / "s").read_bytes() == b"new"


def test_a_missing_folder_is_named_and_no_hidden_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such file or directory: '.*/gone'$"):
        Scheduler(UniformRandom(), cohort_size=1).save(tmp_path / "gone" / "s.bsfl")
    with pytest.raises(OSError, match="too long: '.*/nnn+'$"):
        replace_file(tmp_path / ("n" * 250), b"")


def test_what_a_killed_writer_left_behind_is_removed(tmp_path):
    left = tmp_path / f".s.{'a' * 16}.tmp"
    left.write_bytes(b"half")
    replace_file(tmp_path / "s", b"new")
    assert temporary_files(tmp_path) == []
    (tmp_path / f".other.{'a' * 16}.tmp").write_bytes(b"of another file")
    replace_file(tmp_path / "s", b"newer")
    assert len(temporary_files(tmp_path)) == 1


def test_writers_do_not_disturb_each_other(tmp_path):
    def write(n):
        for _ in range(50):
            replace_file(tmp_path / "s", bytes([n]) * 10_000)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    content = (tmp_path / "s").read_bytes()
    assert len(content) == 10_000
    assert len(set(content)) == 1
    assert temporary_files(tmp_path) == []


def test_a_refused_replacement_leaves_everything(tmp_path):
    (tmp_path / "s").write_bytes(b"old")

    def refuse():
        raise FileInUse("no")

    with pytest.raises(FileInUse):
        replace_file(tmp_path / "s", b"new", check=refuse)
    assert [p.name for p in tmp_path.iterdir()] == ["s"]
    assert (tmp_path / "s").read_bytes() == b"old"


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
    assert Scheduler.load(path).t == 2
    path.unlink()
    second.save(path)
    assert Scheduler.load(path).t == 3, "a file that is gone may be written again"
    met("xyz").save(path)  # a new scheduler takes a file over once
    with pytest.raises(FileInUse):
        second.save(path)


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
    assert run.returncode == 1
    assert "bsfl: what was to be saved in the background is not written" in run.stderr
    assert "FileNotFoundError" in run.stderr
    assert "last words" in run.stdout, "other exit handlers run, too"
    good = subprocess.run([sys.executable, "-c", code, tmp_path / "s"], capture_output=True)
    assert (good.returncode, good.stderr) == (0, b"")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError, match=f"Is a directory: '{tmp_path}'"):
        replace_file(tmp_path, b"new")
    assert temporary_files(tmp_path.parent) == []
