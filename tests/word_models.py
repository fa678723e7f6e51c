"""Models that find memories by words alone, so that their answers can be worked out by hand."""

import base64
import json
import zlib

import numpy as np

from textevolve.evaluation import Usage
from textevolve.llm.embeddings import pack_tokens
from textevolve.llm.model import Response
from textevolve.memory.ranking import CROSS_MODEL, LATE_MODEL

WIDTH = 64


def vector_of(word):
    vector = np.random.default_rng(zlib.crc32(word.encode())).standard_normal(WIDTH)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


class Words:
    """A model for which each word is a token, and equal words have equal vectors. `sign`: of the
    scores of pairs, which are the numbers of words in common."""

    def __init__(self, name, failure=None, sign=1):
        self.name = name
        self.sign = sign
        self.failure = failure
        self.texts = []

    async def __call__(self, request):
        if self.failure is not None:
            raise self.failure
        texts = [message.text.lower() for message in request.messages]
        self.texts += texts
        words = texts[-1].replace("?", "").replace(".", "").split()
        if self.name == LATE_MODEL:
            packed = pack_tokens(np.stack([vector_of(word) for word in words]))
            tokens = base64.b64encode(packed.tobytes()).decode()
            answer = {"width": packed.shape[1], "tokens": tokens}
        elif self.name == CROSS_MODEL:
            answer = {"score": float(self.sign * len(set(words) & set(texts[0].split())))}
        else:
            answer = {"embedding": [1.0, *[0.0] * (WIDTH - 1)]}  # nothing is nearer than others

        return Response(json.dumps(answer), "stop", Usage(1))
