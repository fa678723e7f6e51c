"""What people call the columns of their data, and what becomes of chats."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.ledger import collect_notes
from textevolve.rows import names_rows, read_rows
from textevolve.rows.cases import RowReading, read_cases, take_cases
from textevolve.rows.chats import ChatTurn, read_chat, write_chat
from textevolve.rows.columns import Columns
from textevolve.studies.rows import PARAMETERS


def take_case(row, columns=None):
    (case,) = take_cases([row], columns)
    return case


CHAT = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Why tides?"},
    {"role": "assistant", "content": "The moon."},
]


INPUTS = ("Prompt", "question", "INSTRUCTION", "query", "User Input")
OUTPUTS = ("Response", "output", "answer", "completion", "Candidate-1")
REFERENCES = ("Ground Truth", "target", "gold", "reference-answer")
NAMES = list(zip(INPUTS, OUTPUTS, itertools.cycle(REFERENCES)))


@pytest.mark.parametrize(("input", "output", "reference"), NAMES)
def test_columns_have_the_names_that_people_give_them(input, output, reference):
    case = take_case({input: "Why?", output: "So.", reference: "Thus."})
    assert (case.input, case.candidates, case.reference) == ("Why?", ("So.",), "Thus.")


@pytest.mark.parametrize(
    ("row", "texts"),
    [
        ({"output_b": "1", "output_a": "2", "output_tokens": 7}, ("1", "2")),
        ({"response": "1", "response_2": "2", "response_time": 0.3}, ("1", "2")),
        ({"candidate_10": "10", "candidate_2": "2", "output": "x"}, ("2", "10")),
        ({"responses": ["1", "2"]}, ("1", "2")),
        ({"output": 4}, ("4",)),
        ({"output": None, "answer": "gold"}, ()),
    ],
)
def test_several_outputs_are_candidates_in_order(row, texts):
    assert take_case({"input": "Why?", **row}).candidates == texts


def test_an_answer_is_the_output_alone_and_the_reference_beside_another():
    assert take_case({"prompt": "a", "answer": "b"}).candidates == ("b",)
    beside = take_case({"prompt": "a", "answer": "b", "output": "c"})
    assert (beside.candidates, beside.reference) == (("c",), "b")
    rows = [{"prompt": "a", "answer": "b"}, {"prompt": "a", "answer": "b", "output": "c"}]
    with pytest.raises(InputError, match="case 2: 'answer' is the reference here, and was the out"):
        list(take_cases(rows))


def test_an_instruction_stands_before_its_input():
    row = {"instruction": "Translate.", "input": "Haus", "output": "house"}
    assert take_case(row).input == "Translate.\n\nHaus"
    assert take_case({**row, "input": ""}).input == "Translate."


def test_a_context_is_a_text_or_passages():
    row = {"question": "a", "answer": "b"}
    assert take_case({**row, "context": "c"}).context == "c"
    listed = take_case({**row, "Retrieved contexts": ["c\n\nd", "e"]})
    assert listed.context == "c\nd\n\ne"
    assert take_case({**row, "contexts": '["c", "e"]'}).context == "c\n\ne"
    assert take_case({**row, "context": []}).context is None


def test_columns_get_new_names_and_those_that_make_way_are_told():
    columns = Columns()
    rows = [{"frage": "a", "antwort": "b", "output": "c"}]
    (case,) = take_cases(rows, columns, RowReading({"input": "frage", "output": "antwort"}))
    assert (case.input, case.candidates) == ("a", ("b",))
    assert columns.line() == "columns: input, output"
    assert list(columns.unread) == ["output (as it was)"]
    with pytest.raises(InputError, match="no row has a column 'fage'; saw frage, antwort, output"):
        list(take_cases([{**rows[0], "input": "x"}], reading=RowReading({"gold": "fage"})))


@pytest.mark.parametrize(("ending", "between"), [("csv", ";"), ("csv", ","), ("tsv", "\t")])
def test_cells_are_parted_by_what_the_header_shows(tmp_path, ending, between):
    file = tmp_path / f"rows.{ending}"
    lines = [["prompt", '"resp, onse"', "output"], ["Why?", "1,5; x\t", '"a\nb"']]
    lines[1][1] = f'"{lines[1][1]}"'
    file.write_text("\ufeff" + "\n".join(between.join(line) for line in lines) + "\n")
    ((where, row),) = read_rows(str(file), "row", lambda _: True)
    assert where.endswith(":3")
    assert row == {"prompt": "Why?", "resp, onse": "1,5; x\t", "output": "a\nb"}


def test_folders_and_patterns_are_read_file_by_file(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"input": name, "output": name}) + "\n")
    (tmp_path / "notes.txt").write_text("x")
    for path in (str(tmp_path), str(tmp_path / "*.jsonl")):
        assert names_rows(path)
        assert [(c.id, c.input) for c in read_cases(path)] == [("1", "a"), ("2", "b")]
    with pytest.raises(InputError, match="files of cases"):
        list(read_cases(str(tmp_path / "*.csv")))


def test_a_chat_is_judged_by_its_last_reply_or_by_each():
    (case,) = take_cases([{"id": "t", "messages": CHAT}])
    assert case.input == "User: Hi\nAssistant: Hello.\nUser: Why tides?"
    assert (case.id, case.candidates) == ("t", ("The moon.",))
    first_case, second_case = take_cases(
        [{"id": "t", "messages": CHAT}], reading=RowReading(each_reply=True)
    )
    assert (first_case.id, first_case.input, first_case.candidates) == ("t.1", "Hi", ("Hello.",))
    assert (second_case.id, second_case.input) == ("t.2", case.input)
    with pytest.raises(InputError, match="leave out --each-reply or that column"):
        list(take_cases([{"messages": CHAT, "output": "x"}], reading=RowReading(each_reply=True)))


def test_a_chat_may_be_an_input_a_candidate_or_a_cell():
    row = {"prompt": CHAT[:3], "output": [CHAT[3]]}
    cells = {name: json.dumps(value) for name, value in row.items()}
    assert take_case(row) == take_case(cells)
    assert take_case(row).candidates == ("The moon.",)
    shared = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
    assert take_case(shared).candidates == ("b",)
    two = take_case({"input": "a", "candidates": [[CHAT[1]], CHAT[3:]]})
    assert two.candidates == ("Hello.", "The moon.")


def test_the_last_reply_of_a_chat_is_the_candidate():
    columns = Columns()
    (case,) = take_cases([{"messages": CHAT[:3]}], columns)
    assert case.candidates == ("Hello.",)
    assert columns.warnings(reference=True) == [
        "turns after the assistant's last reply are left out in 1 of the chats"
    ]
    (requested_case,) = take_cases([{"messages": CHAT[:3]}], reading=RowReading(answered=True))
    assert requested_case.candidates == ()


def test_calls_of_tools_are_lines_and_images_are_named():
    columns = Columns()
    call = {"function": {"name": "find\nUser", "arguments": '{"q":\n1}'}}
    image = {"type": "image_url", "image_url": {"url": "x"}}
    chat = [
        {"role": "user", "content": [{"type": "text", "text": "See"}, image]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "name": "find", "content": "42"},
        {"role": "assistant\nUser", "content": "x"},
    ]
    assert take_case({"input": chat, "output": "y"}, columns=columns).input == (
        'User: See\n  (image)\nAssistant calls findUser({"q": 1})\nTool (find): 42\n'
        "Other (assistantuser): x"
    )


@given(st.lists(st.tuples(st.sampled_from(["User", "Assistant"]), st.text()), min_size=2))
def test_no_text_can_pass_for_a_turn(turns):
    written = write_chat(tuple(ChatTurn(speaker, text) for speaker, text in turns))
    starts = [line for line in written.splitlines() if line and not line.startswith("  ")]
    assert [line.partition(":")[0] for line in starts] == [speaker for speaker, _ in turns]


@pytest.mark.parametrize("value", [[], '[{"a": 1}]', [{"role": "user"}], None])
def test_what_is_no_list_of_messages_is_no_chat(value):
    assert read_chat(value) is None


def test_a_line_of_an_evaluation_is_its_case():
    case = take_case({"case": {"id": "7", "input": "a", "candidates": ["b", "c"]}, "metrics": {}})
    assert (case.id, case.input, case.candidates) == ("7", "a", ("b", "c"))


def test_a_table_keeps_a_reference_as_it_stands(tmp_path):
    file = tmp_path / "cases.csv"
    file.write_text("input,candidate_1,answer,source,rounds\n2 + 2?,4,007,web,1\n3?,3,,,2\n")
    columns = Columns()
    cases = list(read_cases(str(file), columns, RowReading(parameters=PARAMETERS)))
    assert [case.reference for case in cases] == ["007", None]
    assert columns.unread == {"source": None}


def test_fields_that_nothing_reads_are_named_once():
    columns = Columns()
    row = {"input": "2 + 2?", "candidates": ["4", "5"]}
    rows = [{**row, "candidate_1": "x", "label": 1, "empty": None}, {**row, "label": 2, 7: "x"}]
    assert len(list(take_cases([*rows, Case("a", ("b",), reference="c")], columns))) == 3
    assert columns.line() == "columns: input, candidates"
    assert list(columns.unread) == ["candidate_1", "label", "7"]
    assert columns.warnings(reference=False) == [
        "only judges with a reference, such as --judge reference, read: reference"
    ]
    with collect_notes() as notes:
        Columns(unread=dict.fromkeys(f"c{n}" for n in range(20))).leave_out_unread()
    (line,) = notes
    assert line.startswith("left out: 20 columns: nothing reads c0, c1")
    assert line.endswith("c11 and 8 more")
