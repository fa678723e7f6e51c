"""What a scripted server was asked, for situations about prompts and samples."""

import json


def record(server, answer="heads"):
    """Let the server give one answer, and return the list to which its requests are added."""
    bodies = []

    def script(body, _number):
        bodies.append(body)
        return answer(body) if callable(answer) else answer

    server.script = script
    return bodies


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
