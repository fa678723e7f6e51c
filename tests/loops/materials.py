"""Rows as the material of a calibration, for tests and benchmarks that have no command line."""

from textevolve.loops.calibration.trial_runner import part_examples, take_examples


def take_material(template, rows, *, label=None, validation=None):
    """The examples that rows are, parted for the template."""
    examples, columns = take_examples(template, rows, label=label)
    return part_examples(template, examples, columns, label, validation, None)
