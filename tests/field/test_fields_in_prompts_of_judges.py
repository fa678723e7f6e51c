"""A grader's prompt from another tool shows a field of a column, `{{item.response}}`, also with a
brace too many.

The judge would read the braces and grade by nothing; the right outcome is no score, with what to
write, before a call. Braces that name no column are text, as before.
"""

import json

import pytest

ROW = {"input": "Say hello.", "output": "Hello.", "item": {"response": "Hi."}, "price": 3}


@pytest.fixture
def judge(cli, home, model, server):
    server.script = lambda _body, _number: json.dumps({"reason": "so", "label": "good"})
    (home / "rows.jsonl").write_text(json.dumps(ROW))

    def run(template):
        (home / "grade.md").write_text(f"{template}\nText: {{output}}\n")
        judge = "prompt:grade.md+labels=good=1,bad=0"
        return cli("evaluate", "rows.jsonl", "-m", model, "--judge", judge)

    return run


@pytest.mark.parametrize(
    "shown",
    ["{{item.response}}}}", "{{ item.response }}", "{item[response]}", "{price:.2f}"],
)
def test_fields_are_refused(judge, server, shown):
    outcome = judge(f"Grade: {shown}")
    assert outcome.code != 0
    told = " ".join(outcome.err.split())
    assert "is not filled in, since a placeholder is a name alone" in told
    assert not server.requests


@pytest.mark.parametrize("shown", ['{"label": 5}', "{{person.name}}", "{ item }", r"\frac{1}{2}"])
def test_other_braces_are_text(judge, server, shown):
    outcome = judge(f"Grade: {shown}")
    assert outcome.code == 0, outcome.err
    assert shown in server.requests[0]["messages"][-1]["content"]
