"""`bench rate` as it is used."""

import json
import random


def draw(seed, number, prevalence, sensitivity=0.9, specificity=0.7):
    generator = random.Random(seed)
    rows = []
    for n in range(number):
        human = generator.random() < prevalence
        judged = generator.random() < (sensitivity if human else 1 - specificity)
        rows.append({"id": f"{seed}-{n}", "judged": judged, "human": human})
    return rows


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def hide(rows, *names):
    return [{k: v for k, v in row.items() if k not in names} for row in rows]


def test_labels_may_leave_the_verdict_to_the_large_file(home, cli):
    rows = draw(3, 300, 0.5)
    large = write_rows(home / "many.jsonl", hide(rows, "human"))
    looked_up = write_rows(home / "a.jsonl", hide(rows[:60], "judged"))
    stated = write_rows(home / "b.jsonl", rows[:60])
    (one,) = cli("bench", "rate", large, looked_up, "--json").rows
    (other,) = cli("bench", "rate", large, stated, "--json").rows
    assert one["run"] == other["run"]  # the same texts with the same verdicts
    assert one == other
    assert (one["texts"], one["labelled"], one["moved"]) == (240, 60, 60)


def test_texts_without_a_verdict_are_left_out_and_counted(home, cli):
    many, few = draw(1, 50, 0.5), draw(2, 40, 0.5)
    many[3]["judged"] = few[5]["judged"] = None
    large = write_rows(home / "many.jsonl", hide(many, "human"))
    (found,) = cli("bench", "rate", large, write_rows(home / "few.jsonl", few), "--json").rows
    assert (found["texts"], found["missing"]) == (49, 1)
    assert (found["labelled"], found["missing_labelled"]) == (39, 1)
    assert "1 texts, and 1 with a label" in " ".join(found["sentences"])
