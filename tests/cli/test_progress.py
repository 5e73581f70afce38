"""Progress on a terminal, in a log, and when asked to be quiet."""

import pytest

from onnxq.cli.progress import SECONDS_BETWEEN_LINES, showing_progress


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_for_each_step_and_now_and_then_one_that_counts(capsys, clock):
    with showing_progress(quiet=False) as progress:
        progress("preparing")
        for sample in range(100):
            progress(f"calibrated samples: {sample}")
            clock[0] += SECONDS_BETWEEN_LINES / 25
        progress("writing")
    out, err = capsys.readouterr()
    assert out == ""
    numbers = [line.split()[-1] for line in err.splitlines()]
    assert numbers == ["preparing", "0", "25", "50", "75", "writing"]


def test_quiet_is_quiet(capsys):
    with showing_progress(quiet=True) as progress:
        assert progress is None
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_spinner_and_names_are_no_markup(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with showing_progress(quiet=False) as progress:
        progress("calibrating [/bold] 1")
    out, err = capsys.readouterr()
    assert out == ""
    assert "\x1b[" in err
