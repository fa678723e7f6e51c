"""Small images made of bytes, for tests: no package draws them."""

import struct
import zlib


def png(width=4, height=3, colour=(255, 0, 0), extra=b""):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + bytes(colour) * width for _ in range(height))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", zlib.compress(rows)) + b"IEND"


def gif(width=4, height=3, frames=1):
    frame = b"\x21\xf9\x04\0\0\0\0\0" + b"\x2c" + struct.pack("<HHHHB", 0, 0, width, height, 0)
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + frame * frames + b";"


def jpeg(width=4, height=3):
    app = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + b"\1" * 9
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\1\x11\0"
    return b"\xff\xd8" + app + frame + b"\xff\xd9"


def webp(width=4, height=3, kind=b"VP8X", animated=False):
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = {
        b"VP8X": bytes([2 * animated, 0, 0, 0]) + sides,
        b"VP8L": b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14),
        b"VP8 ": b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height),
    }[kind]
    data = b"WEBP" + kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(data)) + data


SVG = b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
