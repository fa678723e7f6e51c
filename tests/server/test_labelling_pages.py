"""Labelling by page: blind, in each person's order, resources before the next item."""

import re

import pytest
from plain_http import Visitor, fetch

from textevolve.agents.resources import NamespaceSpec
from textevolve.labelling.tasks import LabelItem, TaskSpec
from textevolve.store import keys as stored_keys
from textevolve.store import kinds
from textevolve.store import labelling as stored_labels

PAIRS = TaskSpec(kind="pairs", source="secret-model.csv", instructions="Look for <b>facts</b>.")
HIDDEN = ("secret-model", "llama-9")


def make_items(number):
    return [
        LabelItem(
            *(n, f"secret-model/{n}", f"input {n} <script>alert(1)</script>"),
            (f"good {n}", f"bad {n}"),
            variants=("secret-model", "llama-9"),
            candidates=(1, 2),
        )
        for n in range(number)
    ]


@pytest.fixture
def task(resources):
    resources.ensure_namespace("default")
    return resources.write(stored_labels.create_task, "default", "mine", PAIRS, make_items(5))


class Person(Visitor):
    """A browser without a script, which goes where it is led."""

    path = text = ""

    def _follow(self, reply):
        while reply.status == 303:
            self.path = reply.headers["location"]
            reply = self.open(self.path)
        self.text = reply.text
        return reply.status

    def get(self, path):
        return self._follow(self.open(path))

    def post(self, path, **fields):
        return self._follow(self.send(path, fields.items()))

    def begin(self, task, name):
        self.get(f"/labelling/{task.id}")
        assert "Who labels?" in self.text
        self.post("/labelling/name", name=name, then=f"/labelling/{task.id}")

    @property
    def item(self):
        return int(re.search(r'name="item" value="(\d+)"', self.text)[1])

    @property
    def better(self):
        """The place of the good text on the page."""
        output = re.findall(r'<div class="text">(good|bad) \d+</div>', self.text)
        return ("first", "second")[output.index("good")]


def test_somebody_labels_is_led_on_and_comes_back(serve, resources, task):
    url = serve()
    ann = Person(url)
    assert ann.get("/labelling") == 200
    assert "mine" in ann.text
    ann.begin(task, "Ann Lee")
    seen = []
    while "All labelled" not in ann.text:
        seen.append((ann.item, ann.better))
        assert not any(word in ann.text for word in HIDDEN), ann.text
        assert "<script>alert" not in ann.text
        assert "<b>facts" not in ann.text
        ann.post(f"/labelling/{task.id}", item=ann.item, answer=ann.better, note="because\r\nyes")
    assert [item for item, _ in seen] == [0, 1, 2, 3, 4]
    assert {better for _, better in seen[:4]} == {"first", "second"}
    labels = resources.read(stored_labels.read_labels, task.id, "Ann Lee")
    assert [label.answer for label in labels] == ["first"] * 5
    assert labels[0].note == "because\nyes"
    # Looking back shows what was said, and another answer takes its place.
    ann.get(f"/labelling/{task.id}?item=2")
    assert f'value="{ann.better}" data-keys' in ann.text
    assert 'aria-pressed="true"' in ann.text
    ann.post(f"/labelling/{task.id}", item=2, answer="tie", note="")
    assert "All labelled" in ann.text
    assert Person(url).get(f"/labelling/{task.id}") == 200


def test_forms_that_cannot_be_used_are_refused(serve, resources, task):
    ann = Person(serve())
    ann.begin(task, "ann")
    for path, fields, status, answer in (
        ("", {"item": "0", "answer": "best"}, 400, "the answer must be"),
        ("", {"item": "99", "answer": "tie"}, 404, "no such item"),
        ("", {"item": "-1", "answer": "tie"}, 404, "no such item"),
        ("", {"item": "0", "answer": "tie", "note": "x" * 5000}, 400, "at most 4000"),
        ("x", {"item": "0", "answer": "tie"}, 404, "no such labelling task"),
    ):
        assert ann.post(f"/labelling/{task.id}{path}", **fields) == status, fields
        assert answer in ann.text, fields
        assert resources.read(stored_labels.get_task, task.id).done == {}, fields


def test_names_are_shown_as_text_and_lead_nowhere_else(serve, task):
    ann = Person(serve())
    ann.get(f"/labelling/{task.id}")
    ann.post("/labelling/name", name="<i>&", then="https://elsewhere.test/")
    assert ann.path == "/labelling"
    assert "<i>" not in ann.text
    assert "&lt;i&gt;&amp;" in ann.text
    ann.post("/labelling/name", name="<i>&", then="//elsewhere.test")
    assert ann.path == "/labelling"
    assert ann.post("/labelling/name", name="a\x00b", then="") == 400
    assert ann.post("/labelling/name", name="a" * 61, then="") == 400


def test_keys_label_under_their_own_name_and_see_no_more_than_they_may(serve, resources, task, ask):
    keys = pytest.importorskip("textevolve.store.keys")
    resources.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name="other"))

    def add(name, *scopes, namespaces=()):
        return resources.write(
            stored_keys.add_key, name, keys.KeySpec(scopes=scopes, namespaces=namespaces)
        )[1]

    ann = add("ann's key", "label", namespaces=("default",))
    other = add("of another", "label", "read", "admin", namespaces=("other",))
    url = serve(keys=True)
    path = f"{url}/labelling/{task.id}"

    def send(key, path, fields=None):
        headers = {"Authorization": f"Bearer {key}", "Origin": url}
        reply = fetch(path, "POST" if fields else "GET", fields, **headers)
        return reply.status, reply.text

    assert send(ann, path)[0] == 200
    assert send(other, path)[0] == 404
    assert send(add("reader", "read"), path)[0] == 403
    assert "mine" not in send(other, f"{url}/labelling")[1]
    assert send("te_none", path)[0] == 401
    assert send(ann, path, [("item", 0), ("answer", "tie")])[0] == 303
    assert resources.read(stored_labels.get_task, task.id).done == {"ann's key": 1}


@pytest.mark.slow
def test_a_task_is_labelled_by_keyboard_alone(serve, resources, page, check_page):
    items = make_items(6)
    resources.ensure_namespace("default")
    task = resources.write(stored_labels.create_task, "default", "mine", PAIRS, items)
    url = serve()
    page.goto(f"{url}/labelling/{task.id}")
    page.locator("#name").focus()
    page.keyboard.type("ann")
    page.keyboard.press("Enter")
    page.wait_for_selector("#answers")
    page.wait_for_load_state()
    check_page(page)

    def press(*keys, item):
        page.evaluate("document.activeElement.blur()")
        for key in keys:
            page.keyboard.press(key)
        page.wait_for_selector(f'input[name="item"][value="{item}"]', state="attached")
        page.wait_for_load_state()  # only then the keys are listened to

    press("1", item=1)
    press("b", item=2)
    press("t", item=3)
    page.keyboard.press("n")
    page.keyboard.type("1 is odd")  # goes into the note alone
    press("s", item=4)
    press("ArrowLeft", item=3)
    press("ArrowLeft", item=2)
    assert page.locator('[aria-pressed="true"]').inner_text().startswith("Tie")
    press("ArrowRight", item=3)
    page.keyboard.press("n")
    page.keyboard.type("now")
    page.keyboard.press("Escape")
    press("3", item=4)
    press("a", item=5)
    page.keyboard.press("2")
    page.wait_for_selector("h1:has-text('All labelled')")
    labels = resources.read(stored_labels.read_labels, task.id, "ann")
    answers = [label.answer for label in labels]
    lines = ["first", "second", "tie", "tie", "first", "second"]
    turned = {"first": "second", "second": "first", "tie": "tie"}
    swapped = [label.swapped for label in labels]
    assert answers == [turned[s] if t else s for s, t in zip(lines, swapped, strict=True)]
    assert labels[3].note == "now1 is odd"
