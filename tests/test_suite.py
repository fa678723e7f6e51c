"""The suite itself: its outcome depends on neither the day nor on how it was started."""

import datetime
import signal

import pytest

from textevolve.errors import SettingsError
from textevolve.settings import today

TOLD = "from textevolve.settings import today; import signal; print(today(), signal.getsignal(2))"


def test_the_day_is_fixed_here_and_in_processes_started_here_which_can_be_interrupted(spawn):
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    day = today()
    answer, _ = spawn(script=TOLD).communicate(timeout=60)
    assert day != datetime.date.today().isoformat()
    assert answer == f"{day} {signal.default_int_handler}\n"


@pytest.mark.parametrize("named", ["", "2025-01-31"])
def test_the_date_that_prompts_name(monkeypatch, named):
    monkeypatch.setenv("TEXTEVOLVE_TODAY", named)
    assert today() == (named or datetime.date.today().isoformat())


@pytest.mark.parametrize("named", ["tomorrow", "2025-02-30"])
def test_a_date_that_is_none_is_refused(monkeypatch, named):
    monkeypatch.setenv("TEXTEVOLVE_TODAY", named)
    with pytest.raises(SettingsError, match=f"TEXTEVOLVE_TODAY: '{named}' is not a date"):
        today()
