"""How figures look: a policy the same everywhere, ours in front, in files and on pages."""

from io import BytesIO

import matplotlib.pyplot as plt
import numpy as np
import pytest

from bsfl.policies import POLICIES
from bsfl.report import figures_matplotlib
from bsfl.report.plots import (
    COLOURS,
    GREY,
    OURS,
    POLICY_LOOKS,
    Bars,
    Heat,
    Line,
    Look,
    Panel,
    Plot,
    Points,
    Rule,
    curve,
)

X = np.array([1.0, 2.0, 3.0])


def lines(*labels):
    return [Line(label=label, x=X, y=X) for label in labels]


def plot(*panels, **more):
    return Plot(name="p", caption="c", panels=[Panel(marks=marks) for marks in panels], **more)


def luminance(colour):
    """As WCAG 2 defines it."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize("colour", [*COLOURS, GREY])
def test_a_colour_can_be_seen_by_day_and_by_night(colour):
    for background in ("#ffffff", "#15181c"):
        dark, bright = sorted((luminance(colour), luminance(background)))
        assert (bright + 0.05) / (dark + 0.05) >= 3


def test_every_policy_has_a_look_of_its_own_and_ours_share_nothing():
    assert set(POLICY_LOOKS) == set(POLICIES)
    looks = {name: Look.of(i, is_ours=name in OURS) for name, i in POLICY_LOOKS.items()}
    assert len({(one.colour, one.marker) for one in looks.values()}) == len(looks)
    for name in OURS:
        others = [one for other, one in looks.items() if other != name]
        assert looks[name].colour not in {one.colour for one in others}
        assert looks[name].marker not in {one.marker for one in others}


def test_a_policy_looks_the_same_in_any_company():
    alone, many = plot(lines("oort")), plot(lines("a", "random", "b"), lines("pace", "oort"))
    assert alone.look(alone.panels[0].marks[0]) == many.look(many.panels[1].marks[1])
    found = {m.label: many.look(m) for panel in many.panels for m in panel.marks}
    assert len(set(found.values())) == 5, "those that are no policies take looks that are free"


def test_ours_are_drawn_in_front():
    rule, star = Rule(at=2.0), Points(label="recommended", x=X, y=X, is_star=True)
    made = plot([star, *lines("pace", "bsfl", "random", "mine"), rule])
    order = [mark.label for mark in made.in_order(made.panels[0])]
    assert order == ["", "random", "mine", "bsfl", "pace", "recommended"]


def test_a_legend_has_ours_first_and_what_is_grey_last():
    grey = Line(label="truth", x=X, y=X, is_grey=True)
    made = plot([grey, *lines("random", "bsfl")])
    assert [mark.label for mark in made.legend(made.panels[0].marks)] == ["bsfl", "random", "truth"]


def test_a_curve_is_the_median_with_quartiles_from_four_seeds_on():
    """One seed of five is far off: a mean would follow it."""
    runs = np.array([0.0, 1.0, 2.0, 3.0, 100.0])[:, np.newaxis] + X
    made = curve("pace", X, runs)
    assert made.y.tolist() == (2.0 + X).tolist()
    assert [end.tolist() for end in made.band] == [(1.0 + X).tolist(), (3.0 + X).tolist()]
    assert curve("pace", X, runs[:3]).band is None


def test_the_users_own_policy_is_in_front_and_the_legend_has_the_given_order():
    made = plot(lines("mine", "pace", "random"), front=("mine",), order=["random", "mine", "pace"])
    marks = made.panels[0].marks
    assert [mark.label for mark in made.in_order(made.panels[0])][-1] == "mine"
    assert [mark.label for mark in made.legend(marks)] == ["random", "mine", "pace"]
    assert [made.look(mark).is_ours for mark in marks] == [True, False, False]


def test_files_hold_truetype_fonts_and_whole_titles():
    figure = figures_matplotlib.draw(plot(lines("pace"), title="a long title " * 30), size=(4, 3))
    with BytesIO() as file:
        figure.savefig(file, format="pdf")
        content = file.getvalue()
    assert b"/Type3" not in content
    assert b"/CIDFontType2" in content
    title = figure._suptitle.get_window_extent()
    assert 0 <= title.x0 < title.x1 <= figure.bbox.x1


def test_one_panel_is_drawn_on_axes_of_the_users_own():
    figure, axes = plt.subplots()
    figures_matplotlib.draw_on(axes, plot(lines("pace", "random")))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["pace", "random"]
    plt.close(figure)


def test_a_legend_fits_into_its_file():
    names = [f"a name that is rather long, number {i}" for i in range(6)]
    figure = figures_matplotlib.draw(plot(lines(*names), lines(*names)))
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1


def test_plotly_takes_every_mark():
    go = pytest.importorskip("plotly.graph_objects")
    from bsfl.report import figures_plotly

    band, wide = (X - 0.1, X + 0.1), np.array([0.1, np.nan, 0.3])
    marks = [
        Line(label="pace", x=X, y=X, band=band),
        Line(label="gap", x=X, y=np.array([1.0, np.nan, 2.0]), has_markers=True),
        Points(label="dots", x=X, y=X, half=wide, names=["<b>", "b", "c"]),
        Points(label="hue", x=X, y=X, value=X),
        Rule(at=2.0, label="target <b>"),
        Rule(at=2.0, label="min-participation", is_upright=True),
    ]
    bars = [Bars(label=k, names=["a", "b"], height=X[:2], is_stacked=False) for k in ("x", "y")]
    heat = [Heat(names=["a", "b"], y=X[:2], value=np.ones((2, 2)), label="share")]
    for own, log, limits in ((marks, "y", (1.0, 100.0)), (bars, "", None), (heat, "", None)):
        panel = Panel(marks=own, log=log, y_range=limits)
        made = figures_plotly.draw(Plot(name="p", caption="c", panels=[panel]), panel)
        go.Figure(made)  # refuses what plotly does not know
        if limits:
            assert made["layout"]["yaxis"]["range"] == [0.0, 2.0], "decades"
            level = made["layout"]["annotations"][0]
            assert (level["text"], level["y"]) == ("target &lt;b&gt;", pytest.approx(np.log10(2)))
