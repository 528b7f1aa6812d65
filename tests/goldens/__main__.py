"""Write the golden results, or compare today's with them.

python -m tests.goldens write [part ...]
python -m tests.goldens check [name-substring ...]

A case is called part/case, such as scheduling/bsfl/invite-1.3; `check scheduling` runs one part.
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import bsfl

from . import store


def computed(jobs):
    """Yield (part, case), result and seconds of each job, in the order given."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for job, (result, seconds) in zip(jobs, pool.map(store.timed, jobs), strict=True):
            yield job, result, seconds


def write(parts):
    for part in parts or store.PARTS:
        jobs = [(part, case) for case in store.part(part).CASES]
        store.write(part, {case: result for (_, case), result, _ in computed(jobs)})
        print(f"{part}: {len(jobs)} cases", flush=True)
    return 0


def check(wanted):
    goldens = {part: store.read(part) for part in store.PARTS}
    jobs = [
        (part, case)
        for part in goldens
        for case in goldens[part]
        if not wanted or any(one in f"{part}/{case}" for one in wanted)
    ]
    cases = [(part, case) for part in goldens for case in store.part(part).CASES]
    missing = [(part, case) for part, case in cases if case not in goldens[part]]
    for part, case in missing:
        print(f"MISSING  {part}/{case}: no golden result; run `write`")
    print(f"bsfl {bsfl.__version__} from {bsfl.__path__[0]}", flush=True)
    start, n_different = time.perf_counter(), 0
    for (part, case), result, seconds in computed(jobs):
        found = store.difference(goldens[part][case], result)
        n_different += found is not None
        outcome = "same    " if found is None else "DIFFERS "
        print(f"{outcome} {part}/{case} ({seconds:.1f} s)", found or "", flush=True)
    seconds = time.perf_counter() - start
    print(f"{len(jobs)} cases in {seconds:.1f} s, {n_different} differ, {len(missing)} missing")
    return int(n_different + len(missing) > 0 or not jobs)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.goldens", description=__doc__)
    parser.add_argument("action", choices=("write", "check"))
    parser.add_argument("names", nargs="*", help="write: parts; check: substrings of part/case")
    options = parser.parse_args()
    return (write if options.action == "write" else check)(options.names)


if __name__ == "__main__":
    sys.exit(main())
