"""Small images made of bytes, for tests: no package draws them."""

import struct
import zlib


def png(width=4, height=3, colour=(255, 0, 0)):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + bytes(colour) * width for _ in range(height))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + b"IEND"


def gif():
    return b"GIF89a" + bytes(7) + b";"


def jpeg():
    return b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + bytes(9) + b"\xff\xd9"


def webp():
    return b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8L" + bytes(10)
