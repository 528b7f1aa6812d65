"""A clock for tests of everything that waits."""


class FakeClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds
