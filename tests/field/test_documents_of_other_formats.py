"""A folder of documents has files that are no text, and some of them are ASCII throughout."""

FILES = {
    "ward.pdf": (b"%PDF-1.4\n1 0 obj << /Type /Catalog >> endobj\n%%EOF\n", "pdftotext"),
    "binary.pdf": (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\nstream\n\x9c\xcb", "pdftotext"),
    "named.md": (b"\n%PDF-1.7\nxref\n", "pdftotext"),
    "ward.docx": (b"PK\x03\x04\x14\0\0\0", "pandoc"),
    "plan.png": (b"\x89PNG\r\n\x1a\n\0\0", "a picture"),
    "photo.jpg": (b"\xff\xd8\xff\xe0\0\x10JFIF", "a picture"),
}


def test_other_formats_are_refused_by_name(cli, home, model):
    created = cli(
        *("memories", "collections", "create", "docs"),
        *("--kind", "semantic", "--embedder", model),
    )
    assert created.code == 0
    (home / "tea.md").write_text("# Tea\n\nA text may speak of %PDF-1.4 and PK.\n")
    for name, (content, advice) in FILES.items():
        (home / name).write_bytes(content)
        outcome = cli("memories", "read", "tea.md", name, "--collection", "docs")
        assert outcome.code == 2
        assert name in outcome.err
        assert advice in outcome.err
        assert "iconv" not in outcome.err
        assert "A text may speak" not in cli("memories", "list", "docs").out
