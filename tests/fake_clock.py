"""A clock for tests of code that waits."""


class FakeClock:
    """Time that passes in `sleep` alone."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds
