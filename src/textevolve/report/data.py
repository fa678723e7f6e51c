import json


def write_rows(rows, target, suffix):
    for r in rows():
        target.write((json.dumps(r) + "\n").encode())
