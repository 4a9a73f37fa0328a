"""The page, read by an HTML parser: its structure, its words, and that nobody's name is markup."""

from __future__ import annotations

from hwtune.diagnosis import Verdict, evidence
from hwtune.diagnosis.engine import Diagnosis, judge
from hwtune.fact import known
from hwtune.model import Machine
from hwtune.profile import load
from hwtune.report.html import render
from tests.support.page import Page
from tests.support.reports import HOSTILE, SHOWN, SnapshotHost, diagnosis, row, rows


def page(name: str = "nvme:nvme0", verbose: bool = False) -> Page:
    return Page(render(diagnosis(name), SnapshotHost(), load(), rows(name), verbose).decode())  # type: ignore[arg-type]


def of(*verdicts: Verdict) -> Page:
    judged = [row(f"a.row{n}", verdict) for n, verdict in enumerate(verdicts)]
    found = judge(Machine(), judged, load())
    return Page(render(found, SnapshotHost(), load(), judged).decode())  # type: ignore[arg-type]


def test_the_head_says_whose_report_it_is() -> None:
    found = page()
    assert found.texts("title") == ["box7: hwtune doctor"]
    assert found.texts("h1") == ["box7"]
    assert [e.text for e in found.all("li") if e.path[-2:] == ("header", "ul")] == [
        "Linux 6.1.0",
        "profile low-latency",
        "from the snapshot box7.tar.gz",
        "2023-11-14 22:13:20 UTC",
    ]
    assert found.texts("p", "tally") == ["1 error 1 warning 1 to note 3 unknown"]
    assert found.texts("p", "note")[0] == "the archive ends early"
    assert "A defect of hwtune, please report it: probe pci: ValueError: odd" in found.texts("p", "note")
    assert found.texts("footer") == ["7 rows: 1 ok, 2 finding, 1 not applicable, 3 unknown. hwtune 0.1.0."]


def test_every_count_leads_to_what_it_counts() -> None:
    found = page()
    targets = [e.attributes["href"] for e in found.all("a")]
    assert targets == ["#error", "#warning", "#info", "#unknown"]
    assert [f"#{e.attributes['id']}" for e in found.all("section")] == targets


def test_the_box_is_a_table_by_node() -> None:
    (box,) = page().texts("table", "box")
    assert box == "NodeCPUsIsolatedMemoryDevices node 0 0-3 2-3 62 GiB"


def test_a_finding_has_its_evidence_and_fix() -> None:
    found = page()
    assert found.texts("h2")[:3] == ["Errors", "Warnings", "To note"]
    (tick,) = found.texts("article", "error")
    assert tick == (
        "cpu.tick cpu:2-3 title of cpu.tick The tick runs."
        " WhereWhat is thereWhat should be"
        " /proc/cmdlinequietnohz_full=2-3"
        " /proc/interruptsLOC 99"
        " Fix (takes effect at the next boot) boot with nohz_full=2-3 Reboot then."
        " About this row Symptomsymptom Causecause Mendedat run time Riskrisk Costcost Sourcessource"
    )


def test_what_is_unknown_stands_under_its_remedy() -> None:
    assert page().texts("div", "remedy") == [
        "take it online 1 row cpu.tickCPU 1 is offline",
        "run as root 1 row nvme.apstnvme:nvme0 needs root",
        "No remedy is known; the reasons: 2 rows nvme.silentthe row came to no verdict"
        " zz.brokena defect of hwtune: " + _error(),
    ]
    assert "Unknown (3 rows, and 1 finding in part): what would make them known" in page().texts("h2")


def _error() -> str:
    (broken,) = [d.error for d in diagnosis().defects if d.where == "row zz.broken"]
    return broken


def test_what_asks_nothing_is_folded_unless_asked_for() -> None:
    folded, unfolded = page().all("details", "fold"), page(verbose=True).all("details", "fold")
    assert [e.text for e in folded] == [
        "Ok (1) memory.finetitle of memory.fineit has none/proc/swaps no swap area",
        "Not applicable (1) memory.nonetitle of memory.noneno swap for nvme:nvme0",
    ]
    assert ["open" in e.attributes for e in folded] == [False, False]
    assert ["open" in e.attributes for e in unfolded] == [True, True]


def test_long_lists_are_folded_and_whole() -> None:
    items = [evidence(f"/sys/x{n}", n) for n in range(11)]
    verdict = Verdict().finding("memory", "m", *items)
    for n in range(8):
        verdict.finding(f"nvme:nvme{n}", "m")
    found = of(verdict)
    assert [e.text for e in found.all("summary") if "more" in e.text] == ["3 more", "1 more"]
    told = found.all("td", "source")
    assert [e.text for e in told] == [f"/sys/x{n}" for n in range(11)]
    assert ["details" in e.path for e in told] == [False] * 8 + [True] * 3
    assert [e.text for e in found.all("code")] == ["memory", *(f"nvme:nvme{n}" for n in range(8))]


def test_one_remedy_of_several_findings_is_told_once() -> None:
    verdict = (
        Verdict().finding("nvme:nvme0", "m", advice="Cool it.").finding("nvme:nvme1", "m", advice="Cool it.")
    )
    assert of(verdict).texts("div", "fix") == ["Fix of each Cool it."]
    verdict.finding("nvme:nvme2", "m", advice="Replace it.")
    assert of(verdict).texts("div", "fix") == ["Fix Cool it.", "Fix Cool it.", "Fix Replace it."]


def test_nothing_found_is_a_page_too() -> None:
    found = Page(render(Diagnosis(Machine(), []), SnapshotHost(), load(), []).decode())  # type: ignore[arg-type]
    assert found.texts("h1") == ["unnamed machine"]
    assert found.all("section") == [] and found.all("a") == [] and found.all("table") == []


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    content = render(diagnosis(), SnapshotHost(), load(), rows()).decode()  # type: ignore[arg-type]
    found = Page(content)
    loaders = {"script", "link", "img", "iframe", "object", "embed", "base", "form", "video", "audio", "svg"}
    assert not loaders & {e.tag for e in found.elements}
    assert not [
        a for e in found.elements for a in e.attributes if a.startswith("on") or a in ("src", "style")
    ]
    (style,) = found.texts("style")
    assert "url(" not in style and "@import" not in style
    (policy,) = [e for e in found.all("meta") if e.attributes.get("http-equiv") == "Content-Security-Policy"]
    assert (policy.attributes["content"] or "").startswith("default-src 'none'; style-src 'unsafe-inline'")


def test_hostile_names_are_text_wherever_they_stand() -> None:
    plain, hostile = page(), page(HOSTILE)
    own = [(e.tag, e.attributes) for e in plain.elements if e.tag not in ("wbr", "span")]
    assert [(e.tag, e.attributes) for e in hostile.elements if e.tag not in ("wbr", "span")] == own
    shown = " ".join(SHOWN.split())
    (warning,) = hostile.texts("article", "warning")
    assert warning.count(shown) == 6  # subject, message, source, value, target, advice
    assert hostile.texts("div", "remedy")[1] == f"run as root 1 row nvme.apst{shown} needs root"
    assert hostile.all("details", "fold")[1].text.endswith(f"no swap for {shown}")


def test_a_hostile_machine_name_is_text() -> None:
    found = diagnosis()
    found.machine.kernel.hostname = known(HOSTILE, "t")
    found.machine.kernel.release = known(HOSTILE, "t")
    read = Page(render(found, SnapshotHost(), load(), rows()).decode())  # type: ignore[arg-type]
    assert read.texts("h1") == [SHOWN]
    assert read.texts("title") == [f"{SHOWN}: hwtune doctor"]
    assert read.all("script") == []


def test_breaks_in_paths_and_lists_do_not_change_what_is_copied() -> None:
    cpus = "1-4,11-39,41-44"
    found = of(Verdict().finding(f"cpu:{cpus}", f"CPUs {cpus}", evidence("/sys/a-b/c1-2", cpus)))
    (article,) = found.texts("article")
    assert article.startswith(
        f"a.row0 cpu:{cpus} title of a.row0 CPUs {cpus} WhereWhat is there /sys/a-b/c1-2{cpus}"
    )
    spans = [e.text for e in found.all("span") if not e.attributes]
    assert spans == [
        "cpu:1-4,",
        "11-39,",
        "41-44",
        "1-4,",
        "11-39,",
        "41-44",
        "c1-2",
        "1-4,",
        "11-39,",
        "41-44",
    ]
