"""Images as data URLs, and what rows and programs give for one: read, checked, named, counted."""

import base64
import json

import pytest

from made_images import gif, jpeg, png, webp
from textevolve.errors import InputError
from textevolve.evaluation import Case, check_case, refer_to_images
from textevolve.images import check_image, image_facts, image_reference, image_url
from textevolve.llm.model import text_hash
from textevolve.rows.cases import RowReading, read_cases
from textevolve.rows.columns import Columns
from textevolve.rows.images import IMAGE_LIMIT, read_image, read_images

ONE, OTHER = image_url(png()), image_url(png(colour=(0, 0, 255)))


@pytest.mark.parametrize(
    ("content", "kind"), [(png(), "png"), (jpeg(), "jpeg"), (gif(), "gif"), (webp(), "webp")]
)
def test_bytes_show_the_image_type(content, kind, tmp_path):
    misnamed = tmp_path / "photo.bmp"
    misnamed.write_bytes(content)
    url = read_image(misnamed)
    assert url.startswith(f"data:image/{kind};base64,")
    assert base64.b64decode(url.partition(",")[2]) == content
    assert read_image(content) == read_image(url) == url
    facts = image_facts(url)
    assert (facts.kind, facts.size) == (kind, len(content))
    assert facts.key == text_hash(url)
    assert str(facts) == f"{kind}, {len(content)} bytes"
    check_image("it", url)


def test_references_stand_for_images():
    short = image_reference(ONE)
    assert len(short) < 150
    assert image_facts(short.replace(";key", ";size=4x3;key")) == image_facts(ONE)  # of old records
    assert image_facts(short) == image_facts(ONE)
    assert image_reference(short) == short
    case = Case("q", ("a", "b"), "7", images=(ONE,), candidate_images=((OTHER,), ()))
    referred = refer_to_images(case)
    assert ONE not in str(referred)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a.png",
        "data:image/svg+xml;base64,PHN2Zz4=",
        'data:image/png;base64,"onerror=alert(1)',
        image_reference(ONE),
        ONE.replace("png", "gif"),
        ONE + "\n",
    ],
)
def test_other_urls_are_no_images(url):
    with pytest.raises(InputError):
        check_image("it", url)
    with pytest.raises(InputError):
        check_case(Case("q", ("a",), images=(url,)))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("bad.txt", "x: bad.txt: is not an image that models take"),
        ("https://a.b/c.png", "x: https://a.b/c.png: images are not fetched"),
        ("data:image/png,raw", "x: a data URL of an image is data:image/png;base64, and valid"),
        (7, "x: an image is a path, bytes, a data URL, or an object with one of these"),
        ("large.png", "x: large.png: an image may have 20 MiB"),
        ([ONE] * 21, "x: holds 21 images, and a case may have 20"),
    ],
)
def test_refused_images_name_their_place(value, message, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"text")
    (tmp_path / "large.png").write_bytes(png() + b"\0" * IMAGE_LIMIT)
    with pytest.raises(InputError) as caught:
        read_images(value, "x", str(tmp_path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def write_rows(folder, rows, name="rows.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_image_paths_follow_the_rows(tmp_path, monkeypatch):
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.png").write_bytes(png())
    monkeypatch.chdir(tmp_path)
    (data / "rows.csv").write_text('question,picture,output\nq,a.png,x\nr,,y\ns,"[""a.png""]",z\n')
    columns = Columns()
    reading = RowReading(map={"images": "picture"})
    cases = list(read_cases("data/rows.csv", columns, reading))
    assert [case.images for case in cases] == [(ONE,), (), (ONE,)]
    (data / "rows.csv").write_text("question,picture,output\nq,a.png,x\nr,b.png,y\n")
    with pytest.raises(InputError, match=r"rows\.csv:3: 'images': b\.png: cannot be read"):
        list(read_cases("data/rows.csv", Columns(), reading))


def test_images_may_be_the_candidates(tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    (tmp_path / "b.png").write_bytes(png(colour=(0, 0, 255)))
    rows = [
        {"input": "a square", "candidate_images": ["a.png", "b.png"]},
        {"input": "a square", "candidate_images": [["a.png", "b.png"], "b.png"]},
        {"input": "a square", "candidates": ["x", "y"], "candidate_images": ["a.png", "b.png"]},
    ]
    path = write_rows(tmp_path, rows)
    single, two, three = read_cases(str(path))
    assert single.candidates == two.candidates == ("(image)", "(image)")
    assert single.candidate_images == three.candidate_images == ((ONE,), (OTHER,))
    assert two.candidate_images == ((ONE, OTHER), (OTHER,))
    assert three.candidates == ("x", "y")
    path = write_rows(tmp_path, [{"input": "p", "output": "x", "candidate_images": ["a.png"] * 2}])
    with pytest.raises(InputError, match="has images for 2 candidates, and 1 outputs"):
        list(read_cases(str(path)))
