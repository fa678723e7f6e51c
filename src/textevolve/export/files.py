"""The writing of files, which has moved to `report.files`."""

from textevolve.report.files import open_target as open_target
