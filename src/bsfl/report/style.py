"""One look for every figure: colour-blind safe, legible in print and on a slide."""

# Okabe and Ito's palette without yellow, which vanishes on white, and three of Tol's
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    *("#882255", "#999933", "#44AA99"),
)
GREY = "#808080"
# shapes of points and ways to draw a line, by their names on paper and on the page
MARKERS = {"o": "circle", "s": "square", "D": "diamond", "^": "triangle-up", "v": "triangle-down"}
MARKERS |= {"<": "triangle-left", ">": "triangle-right", "P": "cross", "p": "pentagon"}
MARKERS |= {"h": "hexagon", "X": "x", "d": "diamond-tall", "8": "octagon", "*": "star"}
DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
PAPER, PAGE = 0, 1


def colour(i: int) -> str:
    """Return the i-th colour; they begin again after the last."""
    return COLOURS[i % len(COLOURS)]


def dash(i: int, where: int) -> str:
    """Return the i-th way to draw a line."""
    return list(DASHES.items())[i % len(DASHES)][where]


def marker(i: int, where: int) -> str:
    """Return the i-th shape of a point."""
    return list(MARKERS.items())[i % len(MARKERS)][where]
