from __future__ import annotations

import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_examples import example_outcome

from onnxq.errors import UsageError
from onnxq.report import CaseOutcome, CheckOutcome, EdgeDecision, GraphPicture, NodePicture, ReportHeader, write_report
from onnxq.report.page import NO_ROOM, render, visible

HEADER = ReportHeader(("corpus",), ("good 1.0", "bad 1.0"), "2026-01-01")

EVIL = (
    "</script><img src=x onerror=alert(1)>",
    "</title></style></svg><script>alert(1)</script>",
    "\"' onload=alert(1) x='",
    "{{ 7 * 7 }}{% raw %}",
    "\x00\x1b[31m\x7f\u0085\u2028",
    "\u202egnp.exe\u202c \u200b\u2066",
    "<!--",
    "]]>&amp;&#0;",
    "\ud800",
    "n" * 10_000,
)


class Tags(HTMLParser):
    """What elements and attributes a page has, and its visible text."""

    VOID = ("meta", "link", "input", "path", "rect")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def evil_outcome(text: str) -> CaseOutcome:
    names = {} if "\ud800" in text else {"skip": text, "trunk": f"{text}2", "node": text}
    good = example_outcome(fails=True, **names)
    return replace(
        good,
        case=text,
        title=text,
        source=text,
        tags=(text,),
        quantizer=text,
        version=text,
        policy=text,
        checks=(CheckOutcome(text, "failed", text), CheckOutcome(text, "passed", text)),
        expected=text,
        actual=f"{text}\n{text}",
        decisions=(EdgeDecision(text, text, text, text, text), *good.decisions),
        noise={text: float("-inf"), f"{text}2": 3.0},
    )


def check_is_inert(page: str) -> None:
    tags = Tags(page)
    assert tags.open == []
    assert [tag for tag, _ in tags.found].count("script") == 1
    assert not {tag for tag, _ in tags.found} & {"img", "iframe", "object", "embed", "base", "form", "a", "use"}
    names = {name for _, attributes in tags.found for name in attributes}
    assert not [name for name in names if name.startswith("on")]
    assert not names & {"src", "xlink:href", "action"}
    assert {a["href"] for _, a in tags.found if "href" in a} == {"data:,"}
    assert not [c for c in page if not c.isprintable() and c not in "\n\t"]


@pytest.mark.parametrize("text", EVIL, ids=range(len(EVIL)))
def test_names_and_texts_are_shown_as_they_are_and_never_become_part_of_the_page(text: str) -> None:
    outcomes = [evil_outcome(text), example_outcome("b"), example_outcome("b", "bad", fails=True)]
    page = render(outcomes, header=ReportHeader((text,), (text,), text))
    check_is_inert(page)
    assert visible(text)[:100] in "".join(Tags(page).text)


@given(st.text(min_size=1))
@settings(max_examples=15, deadline=None)
def test_no_text_at_all_breaks_the_page(text: str) -> None:
    graph = GraphPicture((NodePicture("node", text, text),))
    outcome = CaseOutcome(text, text, checks=(CheckOutcome(text, "failed", text),), graph=graph, actual=text)
    check_is_inert(render([outcome], header=ReportHeader((text,))))


def test_only_the_script_of_the_page_may_run_and_nothing_may_be_loaded() -> None:
    page = render([example_outcome()], header=HEADER)
    policy = next(a["content"] for _, a in Tags(page).found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "http:" not in page
    assert "https:" not in page


def test_what_the_page_says_about_a_failure() -> None:
    text = "".join(Tags(render([example_outcome(), example_outcome(quantizer="bad", fails=True)], header=HEADER)).text)
    for said in (
        "good 1.0, bad 1.0",
        "1 case, 2 quantizers",
        "made up for the tests",
        'expected: "skip" quantized',
        "add input 0 trunk int8",
        "skip int8",
        "trunk int8",
        "18.2 dB",
        "equal",
        "bad differs in 3",
    ):
        assert said in text


def test_the_trunk_is_marked_as_wrong_only_for_a_target_that_wants_it_float() -> None:
    outcome = example_outcome(fails=True)
    assert page_count([outcome], '"line int8 trunk wrong"') == 2  # once in the legend
    assert page_count([replace(outcome, policy="onnxruntime")], '"line int8 trunk wrong"') == 1


def test_quantizers_that_did_the_same_share_a_graph() -> None:
    outcomes = [example_outcome(), example_outcome(quantizer="other")]
    assert page_count(outcomes, "<figure>") == 1
    assert page_count(outcomes, "the same as those of good 1.0") == 1


def test_a_case_that_cannot_be_read_has_one_cell() -> None:
    broken = CaseOutcome("broken", "broken", checks=(CheckOutcome("case-is-readable", "error", "case.toml: title"),))
    page = render([broken, example_outcome(), example_outcome(quantizer="bad")], header=HEADER)
    assert page.count("can&#39;t be read</span></span>") == 1
    assert "case.toml: title" in page


def test_an_empty_run_has_a_page() -> None:
    assert "nothing ran" in render([], header=ReportHeader())


def test_a_thousand_cases_by_three_quantizers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.report.page.DETAIL_BUDGET", 1_000)
    graph = example_outcome().graph
    passing, failing = CaseOutcome("", "One block", quantizer="good", graph=graph), example_outcome(fails=True)
    outcomes = [
        replace(failing if n >= 980 and by == "bad" else passing, case=str(n), quantizer=by, version=str(len(by)))
        for n in range(1000)
        for by in ("good", "third", "bad")
    ]
    start = time.process_time()
    text = render(outcomes, header=HEADER)
    assert time.process_time() - start < 20
    assert len(text) < 6e6
    assert NO_ROOM in text
    assert text.count("<figure>") * 10 <= 1_000
    panels = text.split('<section class="panel failed">')[1:]
    assert len(panels) == 20
    assert all("<figure>" in panel.partition("</section>")[0] for panel in panels)


def test_the_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report(iter([example_outcome()]), path, header=HEADER)
    assert path.read_text(encoding="utf-8") == render([example_outcome()], header=HEADER)
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="missing"):
        write_report([], tmp_path / "missing" / "report.html", header=HEADER)


def page_count(outcomes: list[CaseOutcome], text: str) -> int:
    return render(outcomes, header=HEADER).count(text)
