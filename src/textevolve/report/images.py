"""Images in reports: short descriptions where the image itself is not shown."""

from __future__ import annotations

from textevolve.images import image_facts


def describe_image(url: str) -> str:
    """Describe an image by its format and size: `png, 12 kB`."""
    return str(image_facts(url))
