"""`textevolve optimize` as it is used, on the scripted server."""

TASK = "Say in a sentence what moves the sea."


def asked(model, *more):
    return ("optimize", TASK, "-m", model, "-j", "probe", *more)


def test_a_text_that_there_is_not_is_not_written_over_an_older_one(home, cli, model):
    (home / "best.txt").write_text("An older text.")
    outcome = cli(*asked(model, "--max-calls", 0, "-o", "best.txt", "-o", "all.jsonl"))
    assert outcome.code == 3
    assert "best.txt: was not written" in outcome.err
    assert (home / "best.txt").read_text() == "An older text."
    assert (home / "all.jsonl").exists()
