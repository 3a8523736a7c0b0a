import json

from bss.cli import main

EXPERIMENT = {
    "title": "Nothing yet", "command": "python -m experiments.none", "commit": "0123abc",
    "date": "2026-11-20", "device": "cpu", "cores": 2, "seconds": 1.0, "trained_tokens": 0,
    "evaluated_tokens": 0, "versions": {}, "config": {},
}  # fmt: skip


def test_report_writes_a_page_and_says_where(tmp_path, capsys):
    (tmp_path / "experiment.json").write_text(json.dumps(EXPERIMENT))
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "page.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(tmp_path / "page.html")}
    assert "<h1>Nothing yet</h1>" in (tmp_path / "page.html").read_text()


def test_a_directory_without_results_is_one_line(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "experiment.json: there is no such file" in capsys.readouterr().err
