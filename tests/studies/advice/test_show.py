"""The results of the advisor: sentences, and what its page holds."""

import json

from advice_trials import advice_report, trial
from bsfl.studies.advice.show import floor_words, saving, trials_table


def test_the_page_holds_the_best_for_every_floor_and_texts_are_texts():
    report = advice_report(title="<b>log</b>")
    content = json.loads(report.sections[0].html.partition('id="advice">')[2].split("</script>")[0])
    # pace is fastest up to 20 %, with a floor up to 80 %, and bsfl is the fairest above
    assert content["by_floor"] == [1] * 21 + [2] * 60 + [3] * 20
    assert [one["keeps"] for one in content["trials"]] == [70, 20, 80, 95]
    page = report.page()
    assert "<b>log</b>" not in page
    assert "connect-src" not in page.partition("</head>")[0], "no request goes anywhere"


def test_the_note_of_a_table_says_what_was_read():
    trials = [trial("random", 5.0, 0.5)]
    assert trials_table(trials, trials[0], "6 rows").note == "*: recommended. The log: 6 rows"


def test_a_ratio_that_is_accepted_for_the_floor_is_explained():
    coarse = trial("random", 5.0, 0.7, fair_count=8.0)
    (words,) = floor_words(coarse, 0.8)  # 0.8 - 1/8 = 0.675
    assert words.startswith("A minimum participation of 70 % is accepted for a floor of 80 %: ")
    assert "in 10 rounds is 8.0, and one round is 12 % of it." in words
    assert floor_words(coarse, 0.69) == []
    assert "No setting keeps every client at 90 %" in floor_words(coarse, 0.9)[0]


def test_more_time_is_explained_by_a_higher_participation():
    plain, best, slow = (trial("random", *x) for x in ((5.0, 0.3), (6.0, 0.82), (9.0, 0.66)))
    first, second = saving(best, slow, plain)
    assert "in return" not in first
    assert second == (
        "It takes 20 % (20 to 20 %) more time than random selection with the same invitations and "
        "deadline; in return, the minimum participation is 82 % instead of 30 %."
    )
    assert "in return" not in saving(slow, best, best)[0], "slower and less fair"
