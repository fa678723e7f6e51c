"""What changed between two texts, which has moved to `report.differences`."""

from textevolve.report.differences import find_differences as find_differences
