"""Cases of rows, value by value: which column is what, chats, and what cannot be read."""

import logging

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.rows.cases import RowReading, read_cases, take_cases
from textevolve.rows.chats import ChatTurn, list_messages, read_chat, read_texts, write_chat
from textevolve.rows.columns import NAMED, Columns, find_roles, is_text_column, list_names
from textevolve.rows.images import list_images
from textevolve.trajectory import NO_ANSWER

ROW = {"input": "Why?", "output": "So."}
CALL = {"name": "find", "arguments": {"q": 1}}


def take(row, columns=None, **options):
    (case,) = take_cases([row], columns, RowReading(**options))
    return case


def refusal(*rows, **options):
    with pytest.raises(InputError) as caught:
        list(take_cases(list(rows), reading=RowReading(**options)))
    return str(caught.value)


def say(role, content, **more):
    return {"role": role, "content": content, **more}


# Ids and texts


@pytest.mark.parametrize(("id", "expected"), [(None, "1"), (0, "0"), ("a", "a"), ("", "")])
def test_rows_without_ids_are_numbered(id, expected):
    assert take({**ROW, "id": id}).id == expected


def test_replies_are_numbered_from_one():
    chat = [say("user", "a"), say("assistant", "b"), say("assistant", "c")]
    cases = take_cases([{"messages": chat}], reading=RowReading(each_reply=True))
    assert [(case.id, case.candidates) for case in cases] == [("1.1", ("b",)), ("1.2", ("c",))]


def test_numbers_are_texts():
    case = take({"input": 4, "output": 0.5, "reference": 7})
    assert (case.input, case.candidates, case.reference) == ("4", ("0.5",), "7")


def test_missing_values_are_no_texts():
    """Data frames have NaN where a cell is empty."""
    nan = float("nan")
    case = take({**ROW, "id": nan, "reference": nan, "context": nan, "output_b": nan})
    assert (case.id, case.reference, case.context, case.candidates) == ("1", None, None, ("So.",))
    assert refusal({"input": nan, "output": "x"}) == "case 1: 'input' is missing"


@pytest.mark.parametrize("value", [True, {"a": 1}, [1, 2], b"x"])
def test_other_types_are_refused(value):
    kind = type(value).__name__
    for name in ("output", "input"):
        reason = refusal({**ROW, name: value})
        assert reason.partition(";")[0] == f"case 1: '{name}' must be text, not {kind}"


def test_lists_have_several_outputs():
    assert take({"input": "a", "candidates": ["b", 2]}).candidates == ("b", "2")
    for value in ("b", {"a": "b"}, b"b", 7):
        message = refusal({"input": "a", "candidates": value})
        assert message == "case 1: 'candidates' must be a list of texts"


def test_no_input_names_the_columns():
    assert "no column has the input, whose usual names are" in refusal({"a": 1, "output": "b"})
    assert "saw a, output; name the column with --map input=COLUMN" in refusal(
        {"a": 1, "output": "b"}
    )


def test_blank_instructions_leave_no_gap():
    row = {"instruction": " ", "input": "Haus", "output": "house"}
    assert take(row).input == "Haus"
    assert take({"instruction": "Go.", "output": "x"}).input == "Go."


# References


@pytest.mark.parametrize(
    ("values", "reference"),
    [
        ({"target": True, "gold": "b"}, "b"),  # a truth value is a verdict
        ({"target": " ", "gold": 0}, "0"),
        ({"target": {"a": 1}, "gold": "b"}, "b"),
        ({"target": [say("assistant", "b")]}, "b"),
        ({"target": None}, None),
    ],
)
def test_first_texts_are_references(values, reference):
    assert take({**ROW, **values}).reference == reference


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (True, "'Reference' must be text"),
        ({"a": 1}, "name the part with --map reference=Reference.a"),
        ([{"a": 1}], "name the part with --map reference=Reference.0.a"),
    ],
)
def test_other_references_are_refused(value, sentence):
    assert sentence in refusal({**ROW, "Reference": value})


def test_references_are_remembered():
    columns = Columns()
    take({**ROW, "gold": "b"}, columns)
    assert columns.references == {"gold": None}
    assert columns.taken == {"input": "input", "output": "output", "gold": "reference"}
    list(take_cases([Case("a", ("b",))], columns := Columns()))
    assert columns.references == {}


# Outputs


def test_outputs_keep_their_roles():
    columns = Columns()
    take({"input": "a", "output_1": "b", "output_2": "c"}, columns)
    assert columns.taken == {"input": "input", "output_1": "candidate 1", "output_2": "candidate 2"}


@pytest.mark.parametrize(
    ("names", "outputs"),
    [
        (("a", "b"), ("a", "b")),
        (("a", "output"), ("output",)),
        (("a", "candidates"), ()),
        (("b",), ("b",)),
    ],
)
def test_letters_are_outputs_alone(names, outputs):
    """Labelled pairs have the columns a and b; in other tables these are something else."""
    assert find_roles(("input", *names), letters=True).outputs == outputs
    assert not {"a", "b"} & {*find_roles(("input", *names)).outputs}


def test_measures_are_no_outputs():
    names = ("output_tokens", "output_gpt", "output_llama", "output_cost")
    assert find_roles(names).outputs == ("output_gpt", "output_llama")
    assert find_roles(("output_2", "output_10", "output")).outputs == (
        "output",
        "output_2",
        "output_10",
    )


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("Output", True),
        ("output_gpt", True),
        ("output3", True),
        ("outputs", False),  # a list, which is JSON
        ("Candidates", False),
        ("text", True),
        ("score", False),
        ("a", False),
    ],
)
def test_cells_of_texts_stay_text(column, expected):
    assert is_text_column(column) == expected
    assert is_text_column("a", letters=True)


def test_files_need_an_output(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"input": "a", "note": "b"}\n')
    message = "no column has the output; saw input, note; name the column with --map output=COLUMN"
    with pytest.raises(InputError, match=message):
        list(read_cases(str(path)))
    (case,) = read_cases(str(path), reading=RowReading(answered=True))
    assert case.candidates == ()
    path.write_text("\n")
    with pytest.raises(InputError, match=r"rows\.jsonl: has no cases"):
        list(read_cases(str(path)))


def test_empty_outputs_are_allowed(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"input": "a", "output": null}\n{"input": "b", "output": "c"}\n')
    assert [case.candidates for case in read_cases(str(path))] == [(), ("c",)]


# Exported lines, pairs and objects


def test_only_cases_are_unpacked():
    """A column that is called case may hold anything else."""
    assert take({**ROW, "case": {"id": 3}}).input == "Why?"
    assert take({**ROW, "case": "3"}).input == "Why?"


def test_objects_become_cases():
    numbered, pair, third = take_cases([Case("a", ("b",)), ("c", ["d"]), Case("e", ("f",), "7")])
    assert (numbered.id, pair.id, third.id) == ("1", "2", "7")
    assert (pair.input, pair.candidates) == ("c", ("d",))


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"input": "a"}, "cases must be a list or another iterable of them, not dict"),
        (7, "cases must be a list or another iterable of them, not int"),
        (["a"], "case 1: give a Case, a mapping, or a pair (input, candidates), not str"),
        ([("a", ["b"], "c")], "case 1: give a Case, a mapping, or a pair"),
        ([ROW, ("a",)], "case 2: give a Case, a mapping, or a pair"),
    ],
)
def test_other_objects_are_refused(sources, message):
    with pytest.raises(InputError) as caught:
        list(take_cases(sources))
    assert str(caught.value).startswith(message)


def test_parameters_are_taken_twice():
    """From columns and from a mapping; a column without a value leaves the mapping's."""
    row = {**ROW, "parameters": {"rounds": 1, "agents": 2}, "rounds": 3, "agents": None, "x": 4}
    columns = Columns()
    case = take(row, columns, parameters=("rounds", "agents"))
    assert case.parameters == {"rounds": 3, "agents": 2}
    assert columns.unread == {"x": None}
    assert take(row).parameters == {}
    assert refusal({**ROW, "parameters": 3}, parameters=("a",)) == (
        "case 1: 'parameters' must be a mapping"
    )


# Trajectories


def test_tool_calls_need_no_answer():
    case = take({"input": "a", "tool_calls": [CALL]}, trajectory=True)
    assert case.candidates == (NO_ANSWER,)
    assert case.trajectory.steps is None
    assert take({"input": "a", "tool_calls": [CALL], **ROW}).trajectory is None


def test_applications_answer_themselves():
    case = take({"input": "a", "steps": 3}, trajectory=True, answered=True)
    assert case.candidates == ()
    assert case.trajectory.steps == 3


def test_tool_calls_need_one_output():
    message = "the row has tool calls and several outputs"
    row = {"input": "a", "tool_calls": [CALL]}
    assert message in refusal({**row, "candidates": ["b", "c"]}, trajectory=True)
    chat = [say("user", "a"), say("assistant", "b"), say("assistant", "c")]
    options = {"trajectory": True, "each_reply": True}
    assert message in refusal({"messages": chat, "tool_calls": [CALL]}, **options)
    assert take({**row, "output": "b"}, trajectory=True).candidates == ("b",)


def test_chats_have_tool_calls():
    call = {"function": {"name": "find", "arguments": "{}"}}
    chat = [say("user", "a"), say("assistant", None, tool_calls=[call]), say("assistant", "b")]
    assert take({"messages": chat}, trajectory=True).trajectory.tool_calls[0].name == "find"
    assert take({"messages": chat[:1], "output": "c"}, trajectory=True).trajectory is None


# Images


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (None, []),
        (" ", []),
        (float("nan"), []),
        ("a.png", ["a.png"]),
        ('["a.png", null, ""]', ["a.png"]),
        (("a.png", b"x", None, float("nan")), ["a.png", b"x"]),
        ([], []),
        (0, [0]),
    ],
)
def test_blank_images_are_left_out(cell, expected):
    assert list(list_images(cell, "x")) == expected


def test_broken_image_lists_are_refused():
    with pytest.raises(InputError, match="x: begins as a list, and is not valid JSON"):
        list(list_images("[a.png", "x"))


# Summaries of what was read


def test_long_lists_of_names_end():
    assert list_names([]) == "no columns"
    assert list_names(map(str, range(NAMED))) == ", ".join(map(str, range(NAMED)))
    assert list_names(range(NAMED + 1)).endswith("11 and 1 more")
    assert list_names(["a\n b", "x" * 50]) == f"a b, {'x' * 40}"


def test_double_ids_are_warned_of():
    columns = Columns()
    list(take_cases([{**ROW, "id": id} for id in "abab"], columns))
    assert columns.warnings(reference=True) == ["ids that more than one case has: a, b"]
    list(take_cases([{**ROW, "id": id} for id in "abc"], columns := Columns()))
    assert columns.warnings(reference=True) == []


def test_unread_references_are_warned_of():
    columns = Columns()
    take({**ROW, "gold": "b"}, columns)
    assert columns.warnings(reference=True) == []
    (warning,) = columns.warnings(reference=False)
    assert warning.endswith("read: gold")


def test_renamed_columns_are_told(caplog):
    caplog.set_level(logging.INFO, "textevolve")
    columns = Columns()
    take({"Prompt": "a", "output": "b"}, columns)
    columns.tell(reference=True)
    assert caplog.messages == ["columns: Prompt -> input, output"]
    caplog.clear()
    columns = Columns()
    take(ROW, columns)
    columns.tell(reference=True)
    assert caplog.messages == []
    take({**ROW, "id": "2", "note": "x", "empty": ""}, columns)
    columns.tell(reference=True)
    assert caplog.messages == ["left out: 1 column: nothing reads note"]


# Chats


@pytest.mark.parametrize(
    ("role", "speaker"),
    [
        ("developer", "System"),
        ("human", "User"),
        (" GPT ", "Assistant"),
        ("ipython", "Tool"),
        ("critic!", "Other (critic)"),
    ],
)
def test_roles_have_speakers(role, speaker):
    assert read_chat([say(role, "a")]) == (ChatTurn(speaker, "a"),)
    assert read_chat([{"from": role, "value": "a"}]) == (ChatTurn(speaker, "a"),)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "user"}, False),
        ({"role": 1, "content": "a"}, False),
        ({"role": "user", "content": None}, True),
        ({"role": "assistant", "function_call": {}}, True),
        ({"from": "gpt"}, False),
        ({"from": "gpt", "value": 1}, False),
        ("text", False),
    ],
)
def test_messages_have_role_and_content(message, expected):
    chat = read_chat([say("user", "a"), message])
    assert (chat is not None) == expected


def test_empty_lists_are_no_chats():
    assert list_messages([]) == []
    assert read_chat([]) is None
    assert list_messages("a") is None
    assert read_texts('["a", "b"]') == ("a", "b")
    assert read_texts(["a", 1]) == read_texts("a") == ()


def test_parts_of_messages_are_texts():
    content = [
        "plain",
        {"type": "text", "text": "typed"},
        {"type": "tool_use", "name": "find", "input": {"q": 1}},
        {"type": "tool_result", "content": [{"type": "text", "text": "42"}, "43"]},
        {"type": "input_image"},
        {"type": "audio!"},
        {},
        None,
    ]
    result, turn = read_chat([say("assistant", content)])
    assert (result.speaker, result.text) == ("Tool", "42\n43")
    assert turn.text == "plain\ntyped\n(image)\n(audio)\n(part of no type)"
    assert turn.calls == ('find({"q": 1})',)


def test_calls_are_lines():
    call = {"function": {"name": "a", "arguments": "1\n2"}}
    old = {"name": "b", "arguments": {"x": 1}}
    message = say("assistant", None, tool_calls=[call, None], function_call=old)
    chat = read_chat([message])
    assert chat[0].calls == ("a(1 2)", 'b({"x": 1})')
    assert write_chat(chat) == 'Assistant calls a(1 2)\nAssistant calls b({"x": 1})'


def test_single_turns_are_plain_texts():
    assert write_chat((ChatTurn("User", "a"),)) == "a"
    assert write_chat((ChatTurn("Assistant", "a"),)) == "a"
    assert write_chat((ChatTurn("System", "a"),)) == "System: a"
    assert write_chat((ChatTurn("User", "a", ("b()",)),)) == "User: a\nUser calls b()"
    assert write_chat((ChatTurn("User", ""), ChatTurn("Tool (x)", "a\nb\n"))) == (
        "User:\nTool (x): a\n  b"
    )


def test_tools_are_named():
    chat = read_chat([say("tool", "42", name="find!\n"), say("user", "a", name="Ada")])
    assert [turn.speaker for turn in chat] == ["Tool (find)", "User"]
