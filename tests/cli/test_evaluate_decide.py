"""`--readout decide --decider MODEL` from end to end, with a model that decides."""

from textevolve.llm.testing import ScriptedServer

INPUT, GOOD, BAD = "Why are there tides?", "The moon pulls the sea.", "I like cheese."
CASE = ("evaluate", INPUT, BAD, GOOD, "--rounds", "1", "--readout", "decide")
SETTINGS = """\
[providers.other]
base_url = "{url}"
keyless = true
decisions = "systemone"
[prices."other/decider"]
input = 1.0
output = 1.0
"""
CELLS = 2 * 5


def test_on_a_wire_of_its_own_one_request_fills_a_turn(cli, server, model, home):
    with ScriptedServer(wires=["systemone"]) as other:
        (home / "textevolve.toml").write_text(SETTINGS.format(url=other.url))
        command = (*CASE, "-m", model, "--decider", "other/decider", "--order", "fixed")
        ended = cli(*command, "--json")
        assert ended.code == 0, ended.err
        turns = ended.rows[0]["turns"]
        assert [turn["decided_by"]["emulated"] for turn in turns] == [False] * 3
        asked = [body for body in other.requests if len(body["questions"]) == CELLS]
        assert len(asked) == 3
        assert server.calls == 3
        shared = asked[0]["state"].index("Round 1, Critic argued")
        assert len({body["state"][:shared] for body in asked}) == 1
        calls = other.calls
        assert cli(*command, "--json").out == ended.out
        assert other.calls == calls
        assert ended.rows[0]["metrics"]["calls"] == 6
        assert cli("runs", "show", "last").code == 0
        assert other.calls == calls
