"""Write the golden results, or compare today's with them.

python -m tests.goldens write [part ...]
python -m tests.goldens check [name-substring ...]

A case is called part/case, such as scheduling/bsfl/invite-1.3; `check scheduling` runs one part.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import bsfl

from . import store


def results_of(
    jobs: list[tuple[str, str]], processes: int
) -> Iterator[tuple[tuple[str, str], store.Result, float]]:
    """Yield each case with its result and its seconds, in the order given."""
    if processes == 1:
        for job in jobs:
            yield job, *store.timed(job)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for job, (result, seconds) in zip(jobs, pool.map(store.timed, jobs), strict=True):
            yield job, result, seconds


def write(parts: list[str], processes: int) -> int:
    for part in parts or store.PARTS:
        start = time.perf_counter()
        jobs = [(part, case) for case in store.part(part).CASES]
        results = {job[1]: result for job, result, _ in results_of(jobs, processes)}
        store.write(part, results)
        size_kb = store.path_of(part).stat().st_size / 1000
        seconds = time.perf_counter() - start
        print(f"{part}: {len(results)} cases, {size_kb:.0f} kB, {seconds:.1f} s", flush=True)
    return 0


def check(wanted: list[str], processes: int) -> int:
    goldens = {part: store.read(part) for part in store.PARTS if store.path_of(part).exists()}
    names = {f"{part}/{case}": (part, case) for part in goldens for case in goldens[part]}
    jobs = [job for name, job in names.items() if not wanted or any(w in name for w in wanted)]
    n_different = 0
    unknown = [
        f"{part}/{case}"
        for part in goldens
        for case in store.part(part).CASES
        if case not in goldens[part]
    ]
    for name in unknown:
        print(f"MISSING  {name}: no golden result; run `write`")
    print(f"bsfl {bsfl.__version__} from {Path(bsfl.__file__).parent}", flush=True)
    start = time.perf_counter()
    for (part, case), result, seconds in results_of(jobs, processes):
        found = store.difference(goldens[part][case], result)
        n_different += found is not None
        print(
            f"{'same' if found is None else 'DIFFERS':8} {part}/{case} ({seconds:.1f} s)"
            + (f": {found}" if found else ""),
            flush=True,
        )
    seconds = time.perf_counter() - start
    print(f"{len(jobs)} cases in {seconds:.1f} s, {n_different} differ, {len(unknown)} missing")
    return int(n_different + len(unknown) > 0 or not jobs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.goldens", description=__doc__)
    parser.add_argument("action", choices=("write", "check"))
    parser.add_argument("names", nargs="*", help="write: parts; check: substrings of part/case")
    parser.add_argument("--processes", type=int, default=2, choices=(1, 2))
    options = parser.parse_intermixed_args()
    if options.action == "write" and (unknown := set(options.names) - set(store.PARTS)):
        parser.error(f"parts are {', '.join(store.PARTS)}; got {', '.join(sorted(unknown))}")
    return {"write": write, "check": check}[options.action](options.names, options.processes)


if __name__ == "__main__":
    sys.exit(main())
