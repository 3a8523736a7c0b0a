"""Help pages: what is printed is what is written, to the last star."""

import re

import pytest

from bss.cli import main
from bss.cli.app import COMMANDS, TASKS, application


def dense(text):
    """Return a text without what the layout adds: blanks, frames, and the marks of code."""
    return re.sub(r"[\s│`]+", "", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_character_of_a_help_page_is_eaten(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main([*command.split(), "--help"]) == 0
    page = dense(capsys.readouterr().out)
    root = app = application(command)
    for part in command.split():
        app = app[part]
    written = [
        argument.parameter.help or ""
        for argument in app.assemble_argument_collection(
            default_parameter=root.default_parameter, parse_docstring=True
        )
        if argument.show
    ]
    assert any(written)
    for text in written:
        assert dense(text) in page, text


@pytest.mark.parametrize("command", ["advise", "fit es", "fit critical", "schedule"])
def test_the_star_of_a_step_time_is_shown(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*command.split(), "--help"]) == 0
    assert '"0.05 + 0.002*B" or "50ms + 2ms*B"' in capsys.readouterr().out


def test_the_first_page_has_every_command_in_four_groups_and_a_first_step(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["--help"]) == 0
    page = capsys.readouterr().out
    assert "First step: bss advise --params 350M" in page
    order = [page.index(f"─ {task} ─") for task in TASKS]
    assert len(order) == 4 and order == sorted(order)
    listed = [name for names in TASKS.values() for name in names]
    assert sorted(listed) == sorted({command.partition(" ")[0] for command in COMMANDS})
