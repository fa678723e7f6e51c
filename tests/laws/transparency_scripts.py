"""Short texts in many scripts, and what holds between them: the parts of the second matrix of
`test_transparency.py`.

All texts say something simple, such as "My small boat is new". What must come out is worked out
from their words here, never by the product.
"""

import asyncio
import csv
import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laws.studies import write_rows
from memory.memory_script import FENCE, fact, facts, is_question, user_text
from textevolve import Case, Client, MemorySpec, load_rules
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.node_eval import GENERATE, ConsistencyEvaluator, Monitor


@dataclass(frozen=True)
class Script:
    """A text in a script or language.

    Attributes:
        words: Its words, in order.
        swap: A word of it, and another word of the same kind, such as daughter and son.
        stop: The mark that ends a sentence.
        inside: A word, and a text in which these letters stand only within a longer word.
        case: A text in capitals, and the same in small letters.
        zero: The digit 0 of the script, if it has digits of its own; full-width in East Asia.
        spaced: Whether words are written with spaces.
    """

    words: tuple[str, ...]
    swap: tuple[str, str]
    stop: str = "."
    inside: tuple[str, str] | None = None
    case: tuple[str, str] | None = None
    zero: str = ""
    spaced: bool = True

    def join(self, words: tuple[str, ...]) -> str:
        """Write words as a text, without a stop."""
        return (" " if self.spaced else "").join(words)

    @property
    def text(self) -> str:
        return self.join(self.words)

    @property
    def swapped(self) -> str:
        """Return the text with the other word."""
        old, new = self.swap
        return self.join(tuple(new if word == old else word for word in self.words))

    @property
    def decomposed(self) -> str:
        """Return the text in the decomposed form, which looks the same; file names of macOS and
        some keyboards have it."""
        return unicodedata.normalize("NFD", self.text)

    @property
    def has_forms(self) -> bool:
        """Tell whether the text has two forms."""
        return self.decomposed != self.text

    @property
    def has_stop(self) -> bool:
        """Tell whether a mark ends a sentence; Thai has spaces only."""
        return bool(self.stop)

    def write_number(self, number: int) -> str:
        """Write a number in the digits of the script."""
        return "".join(chr(ord(self.zero) + int(digit)) for digit in str(number))


SCRIPTS: dict[str, Script] = {
    "English": Script(
        words=("My", "caf\u00e9", "boat", "is", "new"),
        swap=("boat", "coat"),
        inside=("boat", "My boathouse is new"),
        case=("CAF\u00c9", "caf\u00e9"),
    ),
    "German": Script(
        words=("Meine", "Tochter", "wohnt", "in", "K\u00f6ln"),
        swap=("Tochter", "Schwester"),
        inside=("Tochter", "Die Tochterfirma ist neu"),
        case=("HAUPTSTRASSE", "Hauptstra\u00dfe"),
    ),
    "Turkish": Script(
        words=("K\u0131z\u0131m", "bug\u00fcn", "\u0130zmir", "yolunda"),
        swap=("K\u0131z\u0131m", "O\u011flum"),
        inside=("yol", "Bug\u00fcn yolcu geldi"),
        case=("\u0130ZM\u0130R", "izmir"),
    ),
    "Greek": Script(
        words=("Η", "κ\u03ccρη", "μου", "εδ\u03ce"),
        swap=("κ\u03ccρη", "μητ\u03adρα"),
        inside=("κ\u03ccρη", "Η τσ\u03acντα της κ\u03ccρης"),
        case=("ΟΔΟΣ", "οδος"),
    ),
    "Russian": Script(
        words=("Мой", "сын", "живёт", "в", "Москве"),
        swap=("сын", "брат"),
        inside=("сын", "Дом моего сына в Москве"),
        case=("МОЙ", "мой"),
    ),
    "Arabic": Script(
        words=("ابني", "مُحَمَّد", "طبيب", "في", "أسوان"),
        swap=("مُحَمَّد", "مَحْمُود"),
        stop="؟",
        inside=("طبيب", "ابنتي طبيبة في أسوان"),
        zero="\u0660",
    ),
    "Persian": Script(
        words=("دخترم", "نمی\u200cخواهد", "در", "تهران", "بماند"),
        swap=("دخترم", "پسرم"),
        stop="؟",
        inside=("خواهد", "او نمی\u200cخواهد برود"),
        zero="\u06f0",
    ),
    "Hebrew": Script(
        words=("הבת", "שלי", "אומרת", "\ufb2a\u05b8לוֹם", "לכולם"),
        swap=("הבת", "הבן"),
        inside=("שלי", "השליח כאן"),
    ),
    "Hindi": Script(
        words=("आज", "प\u095dाई", "में", "बेटी", "है"),
        swap=("बेटी", "बेटा"),
        stop="।",
        inside=("राम", "वह रामायण है"),
        zero="\u0966",
    ),
    "Bengali": Script(
        words=("আমার", "ছেলে", "ঢাকা\u09dfে", "ভালো", "আছে"),
        swap=("ছেলে", "ছাল"),
        stop="।",
        inside=("বই", "এই বইটি ভালো"),
        zero="\u09e6",
    ),
    "Tamil": Script(
        words=("என்", "மகன்", "இன்று", "கோயிலில்"),
        swap=("மகன்", "மகள்"),
        inside=("கள்", "பூக்கள் அழகு"),
        zero="\u0be6",
    ),
    "Thai": Script(
        words=("ลูกสาว", "ของ", "ฉัน", "กิน", "ปลา"),
        swap=("ลูกสาว", "ลูกชาย"),
        stop="",
        zero="\u0e50",
        spaced=False,
    ),
    "Khmer": Script(
        words=("កូនស្រី", "ខ្ញុំ", "ស៊ី", "ត្រី"),
        swap=("កូនស្រី", "កូនប្រុស"),
        stop="។",
        zero="\u17e0",
        spaced=False,
    ),
    "Chinese": Script(
        words=("我", "的", "女儿", "住", "在", "北京"),
        swap=("女儿", "儿子"),
        stop="。",
        zero="\uff10",
        spaced=False,
    ),
    "Japanese": Script(
        words=("私の", "娘が", "東京で", "本を", "読む"),
        swap=("娘が", "息子が"),
        stop="。",
        zero="\uff10",
        spaced=False,
    ),
    "Korean": Script(
        words=("내", "딸은", "오늘", "서울에", "있다"),
        swap=("딸은", "아들은"),
        zero="\uff10",
        inside=("딸", "오늘 딸기를 먹다"),
    ),
    "Vietnamese": Script(
        words=("Con", "g\u00e1i", "t\u00f4i", "s\u1ed1ng", "\u1edf", "Hu\u1ebf"),
        swap=("g\u00e1i", "trai"),
        inside=("an", "Anh t\u00f4i \u1edf Hu\u1ebf"),
        case=("HU\u1ebe", "hu\u1ebf"),
    ),
}

SIGNS: dict[str, tuple[str, str]] = {
    "a blood type": ("Mia's blood type is A-.", "Mia's blood type is A+."),
    "a language": ("Mia teaches C++.", "Mia teaches C#."),
    "a currency": ("Mia's rent is €900.", "Mia's rent is $900."),
    "a temperature": ("Mia's freezer has 18 degrees.", "Mia's freezer has -18 degrees."),
    "a limit": ("Mia's limit is < 5 mg.", "Mia's limit is > 5 mg."),
    "a letter": ("Mia lives in block A.", "Mia lives in block."),
    "an emoji": ("Mia's pet is a 🐶.", "Mia's pet is a 🐱."),
    "an exponent": ("Mia's flat has 9 m².", "Mia's flat has 9 m³."),
    "a negation": ("Mia eats meat.", "Mia does not eat meat."),
    "a number": ("Mia has two cats.", "Mia has three cats."),
}
"""Pairs of facts that differ in a sign or a word."""

INFLECTED: dict[str, tuple[str, str]] = {
    "German": ("ich wohne mit meinen drei Kindern hier.", "Der Nutzer hat drei Kinder."),
    "Russian": ("Я живу в Москве.", "Пользователь живёт в городе Москва."),
    "Polish": ("Mieszkam w Krakowie.", "Użytkownik mieszka w mieście Kraków."),
    "Czech": ("Bydlím v Praze.", "Uživatel žije ve městě Praha."),
    "Finnish": ("Asun nykyään Helsingissä.", "Käyttäjä asuu kaupungissa Helsinki."),
    "Turkish": ("Artık Ankara'da yaşıyorum.", "Kullanıcı artık Ankara şehrinde yaşıyor."),
    "Hungarian": ("Budapesten lakom.", "A felhasználó Budapest városában lakik."),
    "Greek": ("Μένω στην Αθήνα.", "Ο χρήστης μένει στην πόλη Αθήνα."),
    "Lithuanian": ("Gyvenu Vilniuje.", "Naudotojas gyvena mieste Vilnius."),
    "Spanish": ("Vivo en Sevilla.", "La usuaria vive en Sevilla."),
}
"""What a user says, and the fact that a fluent model notes, in languages that inflect names."""

EXACT: dict[str, tuple[str, str, str]] = {
    "an order": ("Where is order 88231?", "Order 88231 lies here.", "Order 88312 lies here."),
    "an error": ("error e-4012", "Error E-4012 is mended.", "Error E-4013 is mended."),
    "a version": ("version 3.12.1", "Version 3.12.1 is out.", "Version 3.11.2 is out."),
    "a name": ("What did DGIA do?", "DGIA gave a talk.", "The agency gave a talk."),
    "a price": ("What costs €900?", "The flat costs €900.", "The flat costs €909."),
}
"""A query with an exact name or number, the memory that has it, and its neighbour."""

CLUSTERS: dict[str, str] = {
    "Thai": "\u0e17\u0e35\u0e48",
    "Hindi": "\u0915\u094d\u0937\u0940\u0902",
    "Vietnamese": "e\u0302\u0301",
    "Korean": "\u1112\u1161\u11ab",
    "an emoji": "\U0001f469\u200d\U0001f52c",
    "a flag": "\U0001f1f3\U0001f1f4",
}
"""Signs that a reader sees as one, each of several code points."""


# The functions on texts, each run once for all scripts.


class AlikeServer(ScriptedServer):
    """A scripted server whose embeddings are equal for texts of one subject, or, without subjects,
    for all texts, so that only words tell them apart."""

    has_subjects = False

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if not path.split("?")[0].endswith("/embeddings"):
            return super().answer(method, path, headers, body)
        texts = json.loads(body)["input"]
        texts = [texts] if isinstance(texts, str) else texts
        vectors = [embed(text if self.has_subjects else "") for text in texts]
        data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
        content = {"object": "list", "data": data, "usage": {"prompt_tokens": 9}}
        return Answer(body=json.dumps(content).encode())


def embed(text: str) -> list[float]:
    """Return the vector of a text's subject."""
    vector = [0.0] * (len(SUBJECTS) + 1)
    vector[find_subject(text)] = 1.0
    return vector


def find_subject(text: str) -> int:
    """Return the number of the subject that a text speaks of; -1 for any other text."""
    for number, (first_text, second_text) in enumerate(SUBJECTS.values()):
        if first_text in text or second_text in text:
            return number
    return -1


SUBJECTS: dict[str, tuple[str, str]] = {
    **{name: (script.text, script.swapped) for name, script in SCRIPTS.items()},
    **SIGNS,
}


def score_pairs(
    folder: Path, cli: Any, judge: str, pairs: Mapping[str, tuple[str, str]]
) -> dict[str, float | None]:
    """Score pairs of an output and a reference on the command line, by their names."""
    rows = [
        {"id": name, "input": "Say it.", "candidates": [output], "reference": reference}
        for name, (output, reference) in pairs.items()
    ]
    (folder / "pairs.jsonl").write_text(write_rows(rows), encoding="utf-8")
    outcome = cli("evaluate", "pairs.jsonl", "--judge", judge, "-o", "pairs.csv")
    assert outcome.code in (0, 3), outcome.err
    with (folder / "pairs.csv").open(encoding="utf-8", newline="") as file:
        scores = {row["id"]: row["score"] for row in csv.DictReader(file)}
    return {name: float(score) if score else None for name, score in scores.items()}


def judge_labels(folder: Path, cli: Any, label: str, good: str) -> float:
    """Compare a judge that passes each of six texts with a person who gave three of them the label;
    return how often both agree."""
    rows = [
        {"id": f"i{n}", "input": "Say it.", "output": "noon", "label": label if n % 2 else "other"}
        for n in range(6)
    ]
    (folder / "items.jsonl").write_text(write_rows(rows), encoding="utf-8")
    judge = ("--judge", "look:length", "--good", good)
    outcome = cli("bench", "agreement", "items.jsonl", *judge, "-o", "agreement.json")
    assert outcome.code == 0, outcome.err
    figures = json.loads((folder / "agreement.json").read_text(encoding="utf-8"))["aggregates"]
    return figures["summary.judges.look:length.accuracy"]["value"]


def check_rules(folder: Path, rule: Mapping[str, Any], text: str) -> float:
    """Score a text by a rule of a file."""
    (folder / "rules.yaml").write_text(json.dumps({"rules": [rule]}), encoding="utf-8")
    rules = load_rules(str(folder / "rules.yaml"))
    evaluation = asyncio.run(rules(Case("Say it.", (text,))))
    return evaluation.result[0].score


def compare_steps(text: str, other: str) -> float:
    """Return how similar two outputs of a node are, as a monitor's judge finds."""
    with Monitor([ConsistencyEvaluator("same", "text")]) as monitor:
        for output in (text, other):
            with monitor.node(GENERATE, name="say") as node:
                node.output = {"text": output}
        monitor.drain_sync()
        return monitor.last_feedback("say").results["same"].score


def fill_column(client: Client, requests: Any, column: str, placeholder: str) -> list[str]:
    """Fill a column into a prompt for a model, and return what it is asked."""
    prompt = f"Say {{{placeholder}}}."
    client.compare([{column: "noon"}], {"plain": prompt}, metric="regex:.")
    return [request["messages"][-1]["content"] for request in requests]


def find_formed(script: Script) -> str:
    """Return a word of a text that has two forms."""
    return next(word for word in script.words if unicodedata.normalize("NFD", word) != word)


def has_marks(word: str) -> bool:
    """Tell whether a word is written with marks on its letters, such as vowel signs."""
    return any(unicodedata.category(letter) in ("Mn", "Mc") for letter in word)


def remember_facts(folder: Path) -> set[str]:
    """Learn all facts from chats, those of a pair one after the other; return the texts of the
    memories that hold."""
    # What a user says, and the fact that the model notes of it.
    notes: dict[str, str] = dict(INFLECTED.values())
    for first_text, second_text in SUBJECTS.values():
        notes[first_text] = first_text
        notes[second_text] = second_text

    chats = []
    for number, text in enumerate(notes):
        date = f"2026-01-{1 + number % 28:02}"
        message = {"role": "user", "content": f"FACT: {text}", "timestamp": date}
        chats.append({"id": f"c{number:03}", "messages": [message]})

    def script(body: Mapping[str, Any], number: int) -> Answer | str | None:
        if is_question(body):
            return Answer(yes=0.02)
        turns = FENCE.search(user_text(body))[2]
        return facts(*(fact(notes[text]) for text in notes if f"FACT: {text}\n" in f"{turns}\n"))

    with AlikeServer(script) as server:
        server.has_subjects = True
        model = f"{server.url}#alike"
        with Client(model, store=folder / "facts.db", concurrency=1) as client:
            space = client.namespace("acme", create=True)
            space.collections.create("facts", embedder=model)
            client.create_memories(chats, "acme/facts")
            return {memory.text for memory in space.memories("facts").list()}


def search_words(folder: Path) -> dict[str, str]:
    """Search the memories of each script for a word that only one of them has; return the text
    that comes first."""
    first_fields: dict[str, str] = {}
    with AlikeServer() as server:
        model = f"{server.url}#alike"
        with Client(model, store=folder / "words.db") as client:
            space = client.namespace("acme", create=True)
            for name, script in SCRIPTS.items():
                collection = name.lower()
                space.collections.create(collection, embedder=model)
                memories = space.memories(collection)
                # What comes first or last must not win by that alone.
                texts = (script.text, script.swapped, script.text[: len(script.text) // 2])
                memories.add_all([MemorySpec(text=text) for text in texts])
                first_fields[name] = memories.search(script.swap[1], limit=1).memories[0].text
    return first_fields


def search_exactly(folder: Path) -> dict[str, str]:
    """Search memories for an exact name or number, by embeddings that tell nothing; return the
    text that comes first."""
    first_fields: dict[str, str] = {}
    with ScriptedServer() as server:
        model = f"{server.url}#scripted-embeddings"
        with Client(model, store=folder / "exact.db") as client:
            space = client.namespace("acme", create=True)
            space.collections.create("exact", embedder=model)
            memories = space.memories("exact")
            texts = [text for _, *pair in EXACT.values() for text in pair]
            memories.add_all([MemorySpec(text=text) for text in texts])
            for name, (query, _, _) in EXACT.items():
                first_fields[name] = memories.search(query, limit=1).memories[0].text
    return first_fields


def list_statements(client: Client, requests: Any) -> dict[str, bool]:
    """Judge an answer of two sentences in each script; return whether it was taken apart."""
    texts: dict[str, str] = {}
    for name, script in SCRIPTS.items():
        gap = " " if script.spaced else ""
        texts[name] = f"{script.text}{script.stop}{gap}{script.swapped}{script.stop}"
    cases = [Case("Say it.", (text,), name) for name, text in texts.items()]
    list(client.evaluate_batch(cases, judge="answer-relevance"))
    listing = [request["messages"] for request in requests if has_schema(request)]
    prompts = json.dumps(listing, ensure_ascii=False)
    return {name: text in prompts for name, text in texts.items()}


def has_schema(request: Mapping[str, Any]) -> bool:
    return "json_schema" in json.dumps(request.get("response_format") or {})


def cut_documents(folder: Path) -> dict[str, list[str]]:
    """Read a document of many sentences in each script; return its chunks."""
    names: list[str] = []
    for name, script in SCRIPTS.items():
        gap = " " if script.spaced else ""
        sentence = f"{script.text}{script.stop}{gap}"
        (folder / f"{name}.txt").write_text((sentence * 40).strip(), encoding="utf-8")
        names.append(f"{name}.txt")
    for name, cluster in CLUSTERS.items():
        (folder / f"{name} alone.txt").write_text(cluster * 200, encoding="utf-8")
        names.append(f"{name} alone.txt")

    with AlikeServer() as server:
        model = f"{server.url}#alike"
        with Client(model, store=folder / "documents.db") as client:
            space = client.namespace("acme", create=True)
            space.collections.create("docs", kind="semantic", embedder=model)
            client.read_corpus(names, collection="acme/docs", chunk_tokens=64)
            chunks: dict[str, list[str]] = {}
            for memory in space.memories("docs").list():
                name = memory.origin.source.partition(".txt")[0]
                chunks.setdefault(name, []).append(memory.text)
            return chunks
