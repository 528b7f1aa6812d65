"""A damaged cache of compiled programs costs time, and stops nothing."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("numba", reason="the engine fast needs the extra fast")

from bsfl.learning.numba_cache import forget, recovering

PROGRAM = """
import numba

@numba.njit(cache=True)
def double(x):
    return 2 * x
"""
CODE = """
from bsfl.learning.numba_cache import recovering
from program import double
print(recovering(double)(21))
"""


@pytest.mark.slow
def test_a_damaged_cache_is_made_again(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    cache = tmp_path / "cache"
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": path}

    def run():
        command = [sys.executable, "-c", CODE]
        return subprocess.run(command, env=env, capture_output=True, text=True)

    assert run().stdout == "42\n"
    for pattern, content in (("*.nbc", b"cut"), ("*.nbi", b"cut"), ("*.nb?", b"")):
        found = list(cache.rglob(pattern))
        assert found
        for file in found:
            file.write_bytes(content)
        again = run()
        assert again.stdout == "42\n", again.stderr


def test_an_error_that_comes_again_is_raised(tmp_path):
    def program():
        raise ValueError("always")

    program.stats = SimpleNamespace(cache_path=tmp_path)
    (tmp_path / "x.nbi").touch()
    with pytest.raises(ValueError, match="always"):
        recovering(program)()
    assert list(tmp_path.iterdir()) == []
    forget(tmp_path / "gone")
