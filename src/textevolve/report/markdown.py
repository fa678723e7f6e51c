def write_markdown(r, t):
    t.write(b"x")
