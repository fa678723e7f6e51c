"""Images in reports: shown where a page may, named elsewhere, as many as there is room for."""

import io

from made_images import png
from textevolve.images import image_facts, image_reference, image_url
from textevolve.report.blocks import Entry, Images, Matrix, MatrixRow, Report, Section
from textevolve.report.html import html_fragment, write_html
from textevolve.report.images import put_images

ONE, OTHER = image_url(png(64, 48)), image_url(png(colour=(0, 0, 255)))
HOSTILE = '"><script>alert(1)</script>'
FOUND = {image_facts(url).key: url for url in (ONE, OTHER)}


def page_of(*blocks):
    target = io.BytesIO()
    write_html(Report("t", "s", blocks), target)
    return target.getvalue().decode()


def test_a_page_shows_data_urls_of_images_and_nothing_else():
    names = [(HOSTILE, ONE), ("lost", image_reference(OTHER))]
    names += [
        ("a", "https://a.b/c.png"),
        ("b", "javascript:alert(1)"),
        ("c", "data:image/svg+xml;base64,PHN2Zz4="),
        ("d", 'data:image/png;base64,AAAA" onerror="alert(1)'),
    ]
    page = page_of(Images("Seen", names))
    assert page.count("<img ") == 1
    assert f'<img src="{ONE}" alt="' in page
    assert "<script>alert" not in page
    assert "onerror=" not in page.replace("&#34; onerror=", "")
    assert "lost: png, " in page
    assert page.count("not shown here") == 5
    policy = page.split('Content-Security-Policy" content="')[1].split('"')[0]
    assert policy.startswith("default-src 'none'; ")
    assert "img-src data:;" in policy
    assert ONE in html_fragment(Report("t", "s", [Images("", [("x", ONE)])]))


def nested(url):
    block = Images("", [("x", url)])
    rows = [MatrixRow("1", "q", [Entry("o", details=[block]), None], details=[block])]
    return [block, Section("s", [block]), Matrix("m", ["v", "w"], rows)]


def test_names_of_a_store_become_images_wherever_they_stand():
    whole = page_of(*nested(ONE))
    assert whole.count(ONE) == 4
    assert page_of(*put_images(nested(image_reference(ONE)), FOUND.get)) == whole
    assert page_of(*put_images(nested(image_reference(ONE)), {}.get)).count("not shown here") == 4
