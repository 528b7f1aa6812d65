"""Files that take the place of others: whole, with their mode, and only where they should."""

import errno
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bsfl.persistence import atomic
from bsfl.persistence.atomic import lock, replace_file, try_lock

needs_posix = pytest.mark.skipif(os.name != "posix", reason="links and modes of POSIX")
needs_locks = pytest.mark.skipif(atomic.fcntl is None, reason="locks of POSIX")


def temporary_files(folder):
    return [p.name for p in folder.iterdir() if p.name.endswith(".tmp")]


@needs_posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o400])
def test_mode_stays_and_a_new_file_gets_the_usual_one(mode, tmp_path):
    path = tmp_path / "s"
    path.write_bytes(b"old")
    path.chmod(mode)
    replace_file(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", mode)
    (tmp_path / "plain").write_bytes(b"")
    replace_file(tmp_path / "fresh", b"new")
    assert (tmp_path / "fresh").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="root gives files away")
def test_the_owner_stays(tmp_path):
    (tmp_path / "s").write_bytes(b"old")
    os.chown(tmp_path / "s", 65534, 65533)
    replace_file(tmp_path / "s", b"new")
    status = (tmp_path / "s").stat()
    assert (status.st_uid, status.st_gid) == (65534, 65533)


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
    plants = [tmp_path / f".s.{digit * 16}.tmp" for digit in "0123"]
    os.mkfifo(plants[0])
    plants[1].symlink_to(target)
    plants[2].symlink_to(tmp_path / "nowhere")
    plants[3].mkdir()
    replace_file(tmp_path / "s", b"new")  # a FIFO would hold it up for ever
    assert target.read_bytes() == b"precious"
    assert (tmp_path / "s").read_bytes() == b"new"
    assert sorted(temporary_files(tmp_path)) == [plant.name for plant in plants]
    assert not (tmp_path / "nowhere").exists()


def test_a_missing_folder_is_named_and_no_hidden_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such file or directory: '.*/gone'$"):
        replace_file(tmp_path / "gone" / "s.bsfl", b"")
    with pytest.raises(OSError, match="too long: '.*/nnn+'$"):
        replace_file(tmp_path / ("n" * 250), b"")


def test_writers_do_not_disturb_each_other(tmp_path):
    def write(n):
        for _ in range(50):
            replace_file(tmp_path / "s", bytes([n]) * 10_000)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    assert (tmp_path / "s").read_bytes() in [bytes([n]) * 10_000 for n in range(4)]
    assert temporary_files(tmp_path) == []


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError, match=f"Is a directory: '{tmp_path}'"):
        replace_file(tmp_path, b"new")
    assert temporary_files(tmp_path.parent) == []


def error(name):
    code = getattr(errno, name)
    return OSError(code, os.strerror(code))


def failing(name):
    def fail(*args):
        raise error(name)

    return fail


def without_locks(monkeypatch, name="ENOLCK"):
    if atomic.fcntl:
        monkeypatch.setattr(atomic.fcntl, "flock", failing(name))


def without_fsync_of_folders(monkeypatch, name="EINVAL"):
    fsync = os.fsync

    def fail_for_folders(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise error(name)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", fail_for_folders)


def without_modes(monkeypatch, name="EPERM"):
    monkeypatch.setattr(os, "fchmod", failing(name), raising=False)
    monkeypatch.setattr(os, "fchown", failing(name), raising=False)


def open_files():
    links = Path("/proc/self/fd")
    return {os.path.realpath(link) for link in links.iterdir()} if links.is_dir() else set()


def as_on_windows(monkeypatch):
    """No fcntl, no modes, no handles of folders; no file is moved while it is open."""
    monkeypatch.setattr(atomic, "fcntl", None)
    for name in ("fchmod", "fchown"):
        monkeypatch.delattr(os, name, raising=False)
    open_, replace, n_calls = os.open, os.replace, [0]

    def open_no_folder(path, *args):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return open_(path, *args)

    def replace_at_the_third_attempt(source, target):
        n_calls[0] += 1
        if os.path.realpath(source) in open_files() or n_calls[0] % 3:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
        replace(source, target)

    monkeypatch.setattr(os, "open", open_no_folder)
    monkeypatch.setattr(os, "replace", replace_at_the_third_attempt)


def without_anything(monkeypatch):
    without_locks(monkeypatch, "EOPNOTSUPP")
    without_fsync_of_folders(monkeypatch, "ENOTSUP")
    without_modes(monkeypatch, "ENOTSUP")


LIMITED = [
    without_locks,
    lambda patch: without_locks(patch, "ENOTSUP"),
    without_fsync_of_folders,
    without_modes,
    without_anything,
    as_on_windows,
]


@pytest.mark.parametrize("limit", LIMITED)
def test_files_are_replaced_on_every_file_system(limit, tmp_path, monkeypatch):
    limit(monkeypatch)
    for content in (b"first", b"second", b"third"):
        replace_file(tmp_path / "s", content)
        assert (tmp_path / "s").read_bytes() == content
        assert [p.name for p in tmp_path.iterdir()] == ["s"]


def test_locks_that_do_not_exist_are_taken_for_granted(tmp_path, monkeypatch):
    without_locks(monkeypatch)
    with (tmp_path / "a").open("w") as file:
        lock(file)
        assert try_lock(file) is None


@needs_locks
def test_a_lock_has_one_holder(tmp_path):
    with (tmp_path / "a").open("w") as one, (tmp_path / "a").open("w") as other:
        assert try_lock(one) is True
        assert try_lock(other) is False


@pytest.mark.parametrize("has_locks", [True, False])
@pytest.mark.parametrize("fault", [error("EIO"), error("ENOSPC"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("place", ["fchmod", "fsync", "replace", "open", "flock", "check"])
def test_no_temporary_file_stays_after_an_exception(place, fault, has_locks, tmp_path, monkeypatch):
    """20 attempts left 20 files in 0.2 on a file system without locks, and 2 without modes."""
    (tmp_path / "s").write_bytes(b"old")
    if not has_locks:
        without_locks(monkeypatch)

    def fail(*args, **kwargs):
        if place == "open":  # an interrupt comes when the file is there
            os.close(real(*args, **kwargs))
        raise fault

    check = fail if place == "check" else (lambda: None)
    if place == "flock" and atomic.fcntl:
        monkeypatch.setattr(atomic.fcntl, "flock", fail)
    elif place != "check":
        real = getattr(os, place)
        monkeypatch.setattr(os, place, fail)
    for _ in range(20):
        if isinstance(fault, OSError) and place in ("fchmod", "flock"):
            replace_file(tmp_path / "s", b"old", check=check)  # a weaker promise, no failure
        else:
            with pytest.raises(type(fault)):
                replace_file(tmp_path / "s", b"new", check=check)
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["s"]
    assert (tmp_path / "s").read_bytes() == b"old"


@pytest.mark.parametrize("name", ["EIO", "ENOSPC", "EDQUOT"])
def test_a_failing_disk_is_reported(name, tmp_path, monkeypatch):
    (tmp_path / "s").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", failing(name))
    with pytest.raises(OSError, match=os.strerror(getattr(errno, name))):
        replace_file(tmp_path / "s", b"new")
    assert (tmp_path / "s").read_bytes() == b"old"
    monkeypatch.undo()
    without_fsync_of_folders(monkeypatch, name)
    with pytest.raises(OSError, match=os.strerror(getattr(errno, name))):
        replace_file(tmp_path / "s", b"new")
    assert (tmp_path / "s").read_bytes() == b"new", "only its name may not be on the disk"


@needs_posix
@pytest.mark.parametrize("has_locks", [True, False])
def test_the_temporary_file_of_a_killed_process_is_removed(has_locks, tmp_path, monkeypatch):
    if not has_locks:
        without_locks(monkeypatch)
    left, other = (tmp_path / f".{name}.{'a' * 16}.tmp" for name in ("s", "other"))
    left.write_bytes(b"half")
    other.write_bytes(b"of another file")
    replace_file(tmp_path / "s", b"new")
    assert left.exists() != has_locks, "without locks it may belong to a process that is writing"
    if not has_locks:
        long_ago_s = time.time() - 2 * atomic.ABANDONED_S
        os.utime(left, (long_ago_s, long_ago_s))
        replace_file(tmp_path / "s", b"newer")
    assert temporary_files(tmp_path) == [other.name]


@pytest.mark.parametrize("limit", [lambda patch: None, without_locks, as_on_windows])
def test_the_temporary_file_of_a_writer_at_work_stays(limit, tmp_path, monkeypatch):
    limit(monkeypatch)

    def check():
        atomic._remove_abandoned(tmp_path / "s")
        assert len(temporary_files(tmp_path)) == 1

    replace_file(tmp_path / "s", b"new", check=check)
    assert (tmp_path / "s").read_bytes() == b"new"


@needs_locks
def test_a_folder_that_another_program_has_locked_holds_up_no_writer(tmp_path, monkeypatch):
    """`flock FOLDER python train.py` made the first save of 0.2 wait for ever."""
    monkeypatch.setattr(atomic, "LOCK_WAIT_S", 0.01)
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        assert try_lock(handle)
        replace_file(tmp_path / "s", b"new")
    finally:
        os.close(handle)
    assert (tmp_path / "s").read_bytes() == b"new"


@needs_locks
def test_the_folder_is_locked_from_the_check_to_the_replacement(tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)

    def check():
        assert try_lock(handle) is False

    try:
        replace_file(tmp_path / "s", b"new", check=check)
        assert try_lock(handle) is True
    finally:
        os.close(handle)


def test_a_reader_that_never_closes_the_file_is_reported(tmp_path, monkeypatch):
    """As on Windows, where an open file cannot be replaced."""
    (tmp_path / "s").write_bytes(b"old")
    monkeypatch.setattr(atomic, "fcntl", None)
    monkeypatch.setattr(atomic, "RETRY_S", (0.0, 0.0))
    monkeypatch.setattr(os, "replace", failing("EACCES"))
    with pytest.raises(PermissionError):
        replace_file(tmp_path / "s", b"new")
    assert temporary_files(tmp_path) == []


def test_bytes_are_written_as_they_are(tmp_path, monkeypatch):
    """Windows ends lines in its own way unless a file is opened as binary."""
    binary, flags, open_ = 1 << 30, [], os.open
    monkeypatch.setattr(os, "O_BINARY", binary, raising=False)

    def open_binary(path, flag, *args):
        flags.append(flag)
        return open_(path, flag & ~binary, *args)

    monkeypatch.setattr(os, "open", open_binary)
    replace_file(tmp_path / "s", b"one\ntwo\n")
    assert flags[0] & binary
