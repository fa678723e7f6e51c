"""Images at a server: sent along, confined, shown on pages whose policy allows them."""

import base64

from plain_http import fetch, wait_for_status

from made_images import png
from textevolve.images import image_reference, image_url
from textevolve.llm.testing import seen_images

RED = png(64, 48)
ROWS = "question,picture,output\nWhat colour is it here?,img/red.png,Red.\n"


def study(files):
    fields = {"cases": ["rows.csv"], "map": {"images": "picture"}, "judge": "probe"}
    return {"kind": "evaluate", **fields, "run": {"files": {"rows.csv": ROWS, **files}}}


def test_pictures_are_sent_along_with_the_rows(serve, ask, server):
    url = serve()
    sent = {"img/red.png": {"base64": base64.b64encode(RED).decode()}}
    status, begun = ask(f"{url}/v1/studies", study(sent))
    assert status == 201, begun
    run = wait_for_status(lambda: ask(f"{url}/v1/studies/{begun['id']}"), "finished")
    assert run["records"] == {"scored": 1}
    assert list(seen_images(server.requests[-1])) == [RED]
    response = fetch(f"{url}/runs/{run['id']}/cases/1", Accept="text/html")
    assert "img-src 'self' data:" in response.headers["content-security-policy"]
    assert f"Input, image 1: png, {len(RED)} bytes" in response.text
    assert "[image 1: png, " in response.text  # of the calls
    records = ask(f"{url}/v1/studies/{run['id']}/records")[1]["data"]
    assert records[0]["record"]["judged"]["case"]["images"] == [image_reference(image_url(RED))]


def test_no_picture_of_the_server_is_read(serve, ask, server, home):
    (home / "own.png").write_bytes(RED)
    url = serve()
    for path in (str(home / "own.png"), "own.png", "../own.png"):
        rows = f"question,picture,output\nq,{path},a\n"
        status, error = ask(f"{url}/v1/studies", study({"rows.csv": rows}))
        assert status == 400, error
        assert "is not among the files that were sent with the study" in error["error"]["message"]
    assert server.calls == 0
