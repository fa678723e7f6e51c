"""Images in reports: what stands for one where it is not shown.

What a page may show is a data URL of a kind that has no script in it, and nothing else becomes the
address of an image.
"""

from __future__ import annotations

from textevolve.images import image_facts, is_shown


def say_image(url: str) -> str:
    """What is known of an image: `png, 12 kB`."""
    return str(image_facts(url))


def source_of(url: str) -> str:
    """What a page may have as the address of an image; empty where it is not to be shown."""
    return url if is_shown(url) else ""
