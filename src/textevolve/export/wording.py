"""The words of `report.wording`, under the name that pages know them by."""

from __future__ import annotations

from textevolve.report.wording import count as count
from textevolve.report.wording import duration as duration
from textevolve.report.wording import figure as figure
from textevolve.report.wording import letter as letter
from textevolve.report.wording import letters as letters
from textevolve.report.wording import money as money
from textevolve.report.wording import percent as percent
from textevolve.report.wording import shorten as shorten
from textevolve.report.wording import spent as spent
from textevolve.report.wording import visible as visible
