"""The arithmetic of `python -m bench.compare`: ratios, what was lost, the table and the chart."""

from __future__ import annotations

import xml.etree.ElementTree as tree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import tools
from bench.compare import chart, client, figures
from bench.compare.__main__ import chosen, faults
from bench.compare.measure import as_asked, only_counts, takes
from bench.compare.peers import ALL, base
from bench.compare.workloads import LIGHT, WORKLOADS, answers, small


def record(number: int, us: float | None, **more: Any) -> dict[str, Any]:
    latency = {"p50": 1000, "p90": 2000, "p99": 3000, "max": 4000}
    return {
        "round": number, "us": us, "worker_us": None, "per_s": 100.0, "asked": 50, "lost": 0, "losses": {},
        "complaint": "", "first_us": latency, "total_us": latency, "rss_before": 20_000_000, "rss_peak": 30_240_000,
        "worker_rss_before": 8_000_000,
        **more,
    }  # fmt: skip


def result() -> dict[str, Any]:
    """nginx, Arbiter and one that loses a fifth, on a unary workload and on a crowd of streams."""
    unary, crowd = "unary, 1 KB", "1,000 streams"
    light = {"p50": 300, "p99": 900}
    return {
        "facts": {"date": "2026-01-02", "machine": "2 cores", "versions": "x", "rounds": 2, "load_before": 0.1},
        "peers": [{"name": n, "version": "1.2", "keeps": ""} for n in ("nginx", "Arbiter", "Lossy", "Mute", "Dumb")],
        "workloads": [
            {"name": unary, "short": "unary", "unit": "request", "events": 0, "connections": 32},
            {"name": crowd, "short": "crowd", "unit": "event", "events": 200, "connections": 1000},
        ],
        "runs": {
            unary: {
                "nginx": [record(1, 10.0, worker_us=9.0), record(2, 20.0, worker_us=18.0)],
                "Arbiter": [record(1, 40.0, worker_us=27.0), record(2, 60.0, worker_us=45.0)],
                "Lossy": [
                    record(1, 5000.0, lost=20, losses={"status_500": 20}, first_us=None),
                    record(2, None, lost=0),
                ],
                "Mute": [],
            },
            crowd: {
                "nginx": [record(1, 2.0)],
                "Arbiter": [record(1, 3.0)],
                "Dumb": [record(1, 4.0, lost=50, losses={"usage": 50}, first_us=None, total_us=None)],
            },
        },
        "light": {
            "direct": [{"round": 1, "total_us": {"p50": 100, "p99": 500}, "lost": 0}],
            "nginx": [{"round": 1, "total_us": light, "lost": 0}],
            "Arbiter": [{"round": 1, "total_us": light, "lost": 0}, {"round": 2, "total_us": light, "lost": 0}],
        },
        "unable": {unary: {"Mute": "status: HTTP/1.1 404 | no\nsuch thing"}},
    }


def test_a_ratio_compares_the_same_rounds_and_says_how_far_they_lie_apart() -> None:
    runs = result()["runs"]["unary, 1 KB"]
    assert figures.ratio(runs["nginx"], runs["Arbiter"]) == (3.5, 3.0, 4.0)
    assert figures.ratio(runs["nginx"], runs["Arbiter"], "worker_us") == (2.75, 2.5, 3.0)
    assert figures.ratio(runs["nginx"], runs["nginx"]) == (1.0, 1.0, 1.0)


def test_a_round_that_one_of_them_lacks_counts_for_nothing() -> None:
    runs = result()["runs"]["unary, 1 KB"]
    assert figures.ratio(runs["nginx"], runs["Lossy"]) == (500.0, 500.0, 500.0)
    assert figures.ratio(runs["nginx"][1:], runs["Lossy"][:1]) is None
    assert figures.ratio([], runs["Arbiter"]) is None


def test_a_peer_without_a_worker_of_its_own_is_compared_by_the_whole_of_nginx() -> None:
    assert figures.ratio([record(1, 10.0)], [record(1, 40.0, worker_us=30.0)], "worker_us") == (3.0, 3.0, 3.0)


def test_what_is_added_is_over_direct_in_the_same_round() -> None:
    light = result()["light"]
    assert figures.added_ms(light["direct"], light["Arbiter"], "p50") == (0.2, 0.2, 0.2)
    assert figures.added_ms(light["direct"], [], "p50") is None
    lossy = [{"round": 1, "total_us": {"p50": 1}, "lost": 3}]
    assert figures.added_ms(light["direct"], lossy, "p50") is None


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (figures.Spread(1.234, 1.1, 1.3), "1.23× (1.10–1.30)"),
        (figures.Spread(12.34, 11.0, 13.0), "12.3× (11.0–13.0)"),
        (figures.Spread(1234.5, 900.0, 2000.0), "1,234× (900–2,000)"),
        (None, "–"),
    ],
)
def test_a_ratio_has_as_many_decimals_as_mean_something(found: figures.Spread | None, text: str) -> None:
    assert figures.times(found) == text


def test_figures_of_a_smoke_run_say_so_before_anything_else() -> None:
    """They look like others, and stay in a file that somebody prints later."""
    found = result()
    assert tools.SMOKE not in figures.report(found)
    found["facts"]["smoke"] = True
    assert figures.report(found).splitlines()[0] == tools.SMOKE


def test_the_report_is_a_table_for_each_question() -> None:
    text = figures.report(result())
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert ["Arbiter 1.2", "**3.50×**", "**1.50×**"] in rows
    assert ["Lossy 1.2", "500× (20 % lost)", "–"] in rows
    assert ["Mute 1.2", "fails", "–"] in rows
    assert ["Dumb 1.2", "–", "2.00× (wrong token counts)"] in rows
    by_name = {(row[0], len(row)): row for row in rows}
    assert by_name["Arbiter", 8] == ["Arbiter", "3.0", "**1.50×** (1.50–1.50)", "–", "–", "100", "1.00/3.00", "0"]
    assert ["Arbiter", "50.0", "**3.50×** (3.00–4.00)", "36.0", "2.75× (2.50–3.00)", "100", "1.00/3.00", "0"] in rows
    assert ["Lossy", "5,000", "500× (500–500)", "–", "–", "100", "1.00/3.00", "20 of 100 (status_500)"] in rows
    assert by_name["Dumb", 8][-2:] == ["–/–", "50 of 50 (usage)"]
    assert ["Mute", "fails: status: HTTP/1.1 404 / no such thing", *["–"] * 6] in rows
    assert ["Arbiter", "0.200 (0.200–0.200)", "0.400 (0.400–0.400)"] in rows
    # 10.24 MB more for 1,000 streams
    assert ["Arbiter", "20", "8", "30", "10"] in rows
    # every row of a table is as wide as its head
    for table in text.split("\n\n")[1:]:
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_only_our_own_losses_fail_a_run() -> None:
    found = result()
    assert faults(found) == []
    found["runs"]["unary, 1 KB"]["Arbiter"][0]["lost"] = 2
    found["unable"]["unary, 1 KB"]["nginx"] = "502"
    assert len(faults(found)) == 2


def test_the_chart_is_an_svg_with_a_bar_for_each_ratio() -> None:
    drawn = tree.fromstring(chart.svg(result()))
    name = "{http://www.w3.org/2000/svg}"
    bars = drawn.findall(f".//{name}rect")
    assert [bar.get("class") for bar in bars] == ["bar floor", "bar ours", "bar", "bar floor", "bar ours", "bar"]
    widths = [float(bar.get("width") or 0) for bar in bars]
    assert 0 < widths[0] < widths[1] < widths[2]
    texts = [element.text for element in drawn.iter(f"{name}text")]
    assert "3.50×" in texts and "500×, 20 % lost" in texts
    # nothing is drawn outside of the picture
    width = float(drawn.get("width") or 0)
    assert all(float(element.get("x") or 0) <= width for element in drawn.iter(f"{name}text"))


def test_there_is_no_chart_of_nothing() -> None:
    nothing = {**result(), "runs": {}}
    assert chart.svg(nothing) == ""


@pytest.mark.parametrize(("top", "expected"), [(1.0, [1, 2]), (3.0, [1, 2, 5]), (60.0, [1, 2, 5, 10, 20, 50, 100])])
def test_the_axis_goes_to_the_first_mark_that_is_not_below(top: float, expected: list[float]) -> None:
    assert chart.ticks(top) == expected


def test_places_on_the_axis_are_equal_for_equal_factors() -> None:
    assert chart.place(1, 1, 100, 200) == 0 and chart.place(10, 1, 100, 200) == pytest.approx(100)
    assert chart.place(0.1, 1, 100, 200) == 0 and chart.place(1000, 1, 100, 200) == 200


def test_a_slow_peer_is_asked_for_less_but_for_whole_turns() -> None:
    unary = replace(WORKLOADS[0], aim_s=1.5)
    assert unary.requests(1e6) == unary.most
    assert unary.requests(100) == 160  # 1.5 s of it, in turns of 32
    assert unary.requests(0.1) == unary.connections
    paced = next(w for w in WORKLOADS if w.paced)
    assert paced.requests(0.1) == paced.most


def test_every_answer_that_is_asked_for_is_known_beforehand() -> None:
    known = answers(WORKLOADS)
    assert {w.answer for w in (*WORKLOADS, LIGHT)} | {small(w).answer for w in WORKLOADS} == set(known)


def test_nginx_is_asked_for_chat_where_others_translate() -> None:
    nginx, ours, plain = (next(p for p in ALL if p.name == name) for name in ("nginx", "Arbiter", "haproxy"))
    crossing = next(w for w in WORKLOADS if w.crosses)
    assert takes(nginx, crossing) and takes(ours, crossing) and not takes(plain, crossing)
    assert as_asked(nginx, crossing).speaks == "chat" and as_asked(ours, crossing) == crossing


def test_what_never_ended_is_lost_as_what_was_wrong_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client counts what ended; of 40 that were asked, 30 did, and 4 of those were wrong."""
    monkeypatch.setattr(tools, "load", lambda *_, **__: {"requests": 30, "errors": 4})
    report = client.Client(None).ask(base.Target(1, "/", "m"), WORKLOADS[0], 40)
    assert (report["asked"], report["lost"]) == (40, 14)


def test_a_wrong_count_alone_leaves_something_to_measure() -> None:
    assert only_counts(record(1, 1.0, losses={"usage": 3}))
    assert not only_counts(record(1, 1.0, losses={"usage": 3, "cut": 1})) and not only_counts(record(1, 1.0))


def test_what_is_not_installed_is_told_with_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARBITER_PEERS", str(tmp_path))
    installed = tmp_path / "rolter" / "lib" / "python3.11" / "site-packages" / "rolter-9.8.7.dist-info"
    installed.mkdir(parents=True)
    there = {peer.name: version for peer, version in chosen("rolter,litellm,arbiter")}
    assert there["rolter"] == "9.8.7" and "Arbiter" in there and "LiteLLM" not in there
    assert "LiteLLM is not installed: bash bench/compare/peers.sh litellm\n" in capsys.readouterr().err


def test_every_peer_that_can_be_installed_has_its_line_in_the_installer() -> None:
    installer = (Path(base.__file__).parents[1] / "peers.sh").read_text("utf-8")
    for peer in ALL:
        if peer.install.startswith(base.INSTALLER):
            assert f"\n{peer.install.rpartition(' ')[2]}() {{" in installer, peer.name
