def open_console():
    return None


def print_report(r, console):
    print(r.title)
    print(r.sentence)
    print(dict(r.facts))
    for b in r.blocks:
        print(b)
