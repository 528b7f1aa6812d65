"""A client of NVFlare that waits instead of training: sites with odd numbers are slow."""

import time

import nvflare.client as flare

SLOW_S, FAST_S = 2.0, 0.1


def main() -> None:
    flare.init()
    place = int(flare.get_site_name().rpartition("-")[2])
    while flare.is_running():
        model = flare.receive()
        time.sleep(SLOW_S if place % 2 else FAST_S)
        model.params = {name: value + 1.0 for name, value in model.params.items()}
        flare.send(model)


if __name__ == "__main__":
    main()
