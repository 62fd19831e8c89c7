"""Tests of pipeline.report.write and html: one file that stands alone and says what is measured."""

import html as entities
import re
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

from pipeline.config import ArmsConfig, GridEntry
from pipeline.report import evaluation
from pipeline.report.finished import Finished, open_run
from pipeline.report.html import Report, html
from pipeline.report.markdown import markdown
from pipeline.report.write import build, write_report
from tests.report.runs import GRID, MARKUP, TITLE, make_run, make_runs


class Page(HTMLParser):
    """What a browser would see: tables by id, links, ids, and the texts of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.ids: list[str] = []
        self.links: list[tuple[str, str]] = []
        self.tags: list[str] = []
        self.text = ""
        self._table: list[list[str]] | None = None
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        if "id" in found:
            self.ids.append(found["id"])
        self.links += [(tag, found[name]) for name in ("src", "href", "data") if name in found]
        if tag == "table" and "id" in found:
            self._table = self.tables.setdefault(found["id"], [])
        if tag == "tr" and self._table is not None:
            self._table.append([])
        if tag in ("td", "th") and self._table is not None:
            self._table[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._table = None
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_cell and self._table is not None:
            self._table[-1][-1] += data


def written(folders: dict[str, str], out: Path) -> Page:
    """The page that finished runs make, read."""
    runs = [open_run(name, folder) for name, folder in folders.items()]
    where = write_report(build(runs, seed=1, samples=100, title="made"), str(out))
    return Page(Path(where).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def text(report: Report) -> str:
    """Its page."""
    return html(report)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    """Its page, read."""
    return Page(text)


def test_the_page_asks_for_nothing_from_outside(text: str, page: Page) -> None:
    assert page.links
    for tag, target in page.links:
        assert target.startswith("#" if tag == "a" else "data:image/svg+xml;base64,"), target
    assert not {"link", "iframe", "object", "embed", "base"} & set(page.tags)
    style, script = text.split("<style>")[1].split("</style>")[0], text.split("<script>")[1]
    for outside in ("http:", "https:", "@import", "url(", "fetch(", "XMLHttpRequest", "import("):
        assert outside not in style and outside not in script


def test_texts_are_escaped(text: str, page: Page) -> None:
    assert page.tags.count("script") == 1
    assert MARKUP in entities.unescape(text) and MARKUP not in text
    assert "&lt;script&gt;" in text and "<b>&</b>" not in text
    assert f"<title>{entities.escape(TITLE)}</title>" in text


def test_every_table_shows_the_numbers_of_its_frame(report: Report, page: Page) -> None:
    assert len(page.tables) == len(report.sheets)
    for sheet in report.sheets:
        head, *body = page.tables[f"table-{sheet.name}"]
        assert head == [column.heading for column in sheet.columns]
        assert body == [[cell.text for cell in row] for row in sheet.rows]


def test_the_main_table_holds_f1_tk_and_nte_of_the_frame(runs: list[Finished], page: Page) -> None:
    head, *body = page.tables["table-main"]
    frame = evaluation.arms(runs)
    for cells in body:
        shown = dict(zip(head, cells, strict=True))
        for dataset in ("plain", "pool"):
            (own,) = frame.filter(
                (pl.col("dataset") == dataset) & (pl.col("arm") == shown["arm"])
            ).to_dicts()
            assert shown[f"{dataset} F1"] == f"{own['f1']:.3f}"
            assert shown[f"{dataset} TK"] == f"{own['tk']:.1f}"
            undefined = own["nte"] is None
            assert shown[f"{dataset} NTE"] == ("\N{EN DASH}" if undefined else f"{own['nte']:.2f}")


def test_the_contents_lead_to_every_section_and_no_id_stands_twice(page: Page) -> None:
    targets = [target[1:] for tag, target in page.links if tag == "a"]
    assert targets == list(dict.fromkeys(targets)) and set(targets) <= set(page.ids)
    assert set(targets) == {
        *(
            "best",
            "summary",
            "rankings",
            "main",
            "arms",
            "controls",
            "wrong",
            "pareto",
            "tp",
            "heat",
        ),
        *("ndcg", "signals", "costs", "ledger", "questions"),
    }
    assert len(page.ids) == len(set(page.ids))


def test_every_figure_has_words_for_who_cannot_see_it(report: Report, text: str) -> None:
    alts = [entities.unescape(alt) for alt in re.findall(r'<img alt="([^"]+)"', text)]
    assert alts == [drawn.caption for drawn in report.figures]
    assert len({drawn.name for drawn in report.figures}) == len(report.figures)


def test_the_markdown_has_the_same_cells(report: Report) -> None:
    lines = markdown(report).splitlines()
    for sheet in report.sheets:
        for row in sheet.rows:
            cells = [cell.text.replace("\\", "\\\\").replace("|", "\\|") for cell in row]
            assert "| " + " | ".join(cells) + " |" in lines


def test_what_is_undefined_is_a_dash_with_its_count(page: Page) -> None:
    n = [row[-1] for row in page.tables["table-arms-plain"][1:]]
    assert set(n) == {"13 (1 undefined)"}  # one question has no golden answer
    assert "nan" not in {cell for rows in page.tables.values() for row in rows for cell in row}


def test_the_files_hold_the_frames_in_full(report: Report, tmp_path: Path) -> None:
    out = tmp_path / "report"
    for earlier in ("tables/heat.csv", "figures/heat-gone.svg", "figures/notes.txt"):
        (out / earlier).parent.mkdir(parents=True, exist_ok=True)
        (out / earlier).write_text("of an earlier report", encoding="utf-8")
    where = write_report(report, str(out))
    assert where == str(out / "report.html")
    files = {f.name for f in (out / "tables").iterdir()}
    assert files == {*(f"{s.name}.csv" for s in report.sheets), "columns.md"}
    figures = {f.stem for f in (out / "figures").iterdir()}
    assert figures == {f.name for f in report.figures} | {"notes"}  # no figure, so not ours
    for sheet in report.sheets:
        kept = pl.read_csv(out / "tables" / f"{sheet.name}.csv", infer_schema_length=None)
        numbers = [name for name, kind in sheet.frame.schema.items() if kind == pl.Float64]
        assert kept.columns == sheet.frame.columns
        assert kept.select(pl.col(numbers).cast(pl.Float64)).equals(sheet.frame.select(numbers))
    assert (out / "report.html").read_text(encoding="utf-8") == html(report)
    assert (out / "report.md").read_text(encoding="utf-8") == markdown(report)


def test_a_run_without_probes_and_thresholds_has_a_report(tmp_path: Path) -> None:
    arms = ArmsConfig(top_m=(2,), empty_context="frame", grid=(GridEntry(selector="coverage"),))
    folders = make_runs(tmp_path, arms)
    page = written(folders, tmp_path / "report")
    assert {"controls", "tp", "heat"}.isdisjoint(page.ids)
    assert "The policy under test, coverage M2" in page.text
    signals = {row[2] for row in page.tables["table-signals"][1:]}
    assert signals == {"retriever", "coverage"}


def test_a_log_without_golden_answers_has_a_report_full_of_dashes(tmp_path: Path) -> None:
    passage = {"id": "a", "contents": "About a\na town by the sea"}
    rows = [
        {"id": f"q{i}", "question": f"Where {i}?", "golds": [], "metadata": {}, "passages": found}
        for i, found in enumerate([[passage], []])
    ]
    folder = make_run(tmp_path, "log", iter(rows), GRID)
    page = written({"log": folder}, tmp_path / "r")
    assert "No way of choosing can be ranked: no question has golden answers or" in page.text
    assert "F1 is undefined, no question has golden answers" in page.text
    head, *body = page.tables["table-main"]
    f1 = {row[head.index("log F1")] for row in body}
    assert f1 == {"\N{EN DASH}"}
    assert {row[-1] for row in page.tables["table-arms-log"][1:]} == {"0 (2 undefined)"}


def test_a_run_in_which_nothing_lived_is_refused(tmp_path: Path) -> None:
    (tmp_path / "contexts").mkdir()
    (tmp_path / "contexts" / "part-000000.parquet").touch()
    (tmp_path / "manifest.json").write_text('{"arms": []}', encoding="utf-8")
    (tmp_path / "metrics.json").write_text('{"questions": 0, "arms": []}', encoding="utf-8")
    with pytest.raises(ValueError, match="no question lived to be reported"):
        open_run("d", str(tmp_path))


def test_a_folder_without_a_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"manifest\.json: absent; allowed: the folder of a"):
        open_run("d", str(tmp_path))
