"""Rows hold pictures as mail, other wires and tracers write them.

The right bytes are those of the file, by Python's base64; a picture that is elsewhere is told.
"""

import json
import textwrap
from base64 import b64encode
from urllib.parse import quote

import pytest
from asked import write_rows

from made_images import jpeg, png
from textevolve import read_image
from textevolve.llm.testing import seen_images

PICTURE = png(64, 64, (1, 2, 3))
BASE64 = b64encode(PICTURE).decode()
WRAPPED = "\n".join(textwrap.wrap(BASE64, 76))
KIND = "image/png"

FORMS = {
    "wrapped lines": f"data:image/png;base64,{WRAPPED}",
    "no padding": f"data:image/png;base64,{BASE64.rstrip('=')}",
    "capitals": f"DATA:image/png;base64,{BASE64}",
    "Base64 alone": BASE64,
    "wrapped Base64 alone": WRAPPED,
    "bytes as Base64": {"bytes": BASE64, "path": "gone.png"},
    "LangChain": {"type": "image", "base64": BASE64, "mime_type": KIND},
    "LangChain's older form": {"source_type": "base64", "data": BASE64, "mime_type": KIND},
    "Anthropic": {"type": "image", "source": {"type": "base64", "data": BASE64}},
    "Gemini": {"inlineData": {"mimeType": KIND, "data": BASE64}},
    "Vercel": {"type": "image", "image": f"data:image/png;base64,{BASE64}"},
    "a marker in capitals": f"DATA:image/png;BASE64,{BASE64}",
    "a blank": f"data:image/png; base64,{BASE64}",
    "no type": f"data:;base64,{BASE64}",
    "per cent signs": f"data:image/png;base64,{quote(BASE64, safe='')}",
}


def test_every_form_is_shown(cli, home, server, model):
    rows = [{"input": f"Is it {n}?", "output": "Dark.", "images": [f]} for n, f in FORMS.items()]
    write_rows(home / "rows.jsonl", rows)
    outcome = cli("evaluate", "rows.jsonl", "--judge", "probe", "-m", model)
    assert outcome.code == 0, outcome.err
    for name in FORMS:
        asked = [body for body in server.requests if f"Is it {name}?" in json.dumps(body)]
        assert (name, [list(seen_images(body)) for body in asked]) == (name, [[PICTURE]] * 3)


def test_one_reader_for_python():
    assert read_image(b64encode(jpeg()).decode()) == read_image(jpeg())


@pytest.mark.parametrize(
    "form", ["data:image/png;base64,", "data:image/png;base64,a-b_", {"id": 1}]
)
def test_what_is_no_picture_is_refused(cli, home, server, model, form):
    row = {"input": "Which colour?", "output": "Dark.", "images": [form]}
    (home / "rows.jsonl").write_text(json.dumps(row))
    outcome = cli("evaluate", "rows.jsonl", "--judge", "probe", "-m", model)
    assert outcome.code == 2
    assert "rows.jsonl:1: 'images': " in outcome.err
    assert "NoneType" not in outcome.err
    assert server.calls == 0


PLACEHOLDER = "@@@langfuseMedia:type=image/png|id=cc48838a|source=base64_data_uri@@@"


@pytest.mark.parametrize(
    "row",
    [
        {"input": f"Which colour? {PLACEHOLDER}", "output": "Dark."},
        {
            "messages": [
                {"role": "user", "content": f"Which colour? {PLACEHOLDER}"},
                {"role": "assistant", "content": "Dark."},
            ]
        },
    ],
)
def test_placeholders_of_a_tracer_are_told(cli, home, model, row):
    (home / "rows.jsonl").write_text(json.dumps(row))
    outcome = cli("evaluate", "rows.jsonl", "--judge", "probe", "-m", model)
    assert "1 parts of the chats are no text" in outcome.err
    assert "a column images" in outcome.err


def test_an_address_of_a_file_leads_to_its_path(cli, home, server, model):
    picture = home / "two cats.png"
    picture.write_bytes(PICTURE)
    row = {"input": "Which colour?", "output": "Dark.", "images": [picture.as_uri()]}
    (home / "rows.jsonl").write_text(json.dumps(row))
    outcome = cli("evaluate", "rows.jsonl", "--judge", "probe", "-m", model)
    assert outcome.code == 2
    assert f"write {picture}" in " ".join(outcome.err.split())
    assert server.calls == 0
