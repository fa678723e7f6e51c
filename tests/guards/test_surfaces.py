"""Whatever a user can see is as it was frozen in `frozen/`, or the change is on purpose."""

import json
import re
import urllib.request

import pytest

from guards.surfaces import SURFACES, walk_commands, write_studies
from recorded.playing import lay_out

pytestmark = pytest.mark.guard


@pytest.mark.parametrize("name", SURFACES)
def test_what_a_user_can_see_is_as_frozen(frozen, name, home):
    frozen(name, SURFACES[name]())


def test_fields_of_studies_are_as_frozen(cli, frozen):
    schemas = json.loads(cli("run", "schema").out)["oneOf"]
    kinds = [schema["properties"]["kind"]["const"] for schema in schemas]
    texts = [cli("run", "schema", kind).out for kind in kinds]
    frozen("studies.txt", write_studies(dict(zip(kinds, map(json.loads, texts), strict=True))))


@pytest.mark.slow
def test_the_document_of_the_api_is_as_frozen(spawn, frozen):
    process = spawn("serve", "--model", "http://127.0.0.1:9/v1#none", "--port", "0")
    url = next(m[1] for line in process.stderr if (m := re.search(r"listening on (\S+),", line)))
    with urllib.request.urlopen(f"{url}/openapi.json", timeout=60) as response:
        document = json.load(response)
    document["info"].pop("version")
    frozen("openapi.json", lay_out(json.loads(json.dumps(document, sort_keys=True))) + "\n")


def test_the_walk_reaches_commands_of_groups_within_groups():
    paths = [path for path, _ in walk_commands()]
    assert len(paths) == len(set(paths)) > 100
    assert {"textevolve", "textevolve runs resume", "textevolve agents evolve"} <= set(paths)
