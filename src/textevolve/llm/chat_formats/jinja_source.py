"""A Jinja chat template written from the description of a format.

The template renders what `render_chat` renders with markers kept, and refuses what it refuses, by
`raise_exception`. Breaking up markers inside texts is beyond a template.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from textevolve.llm.chat_formats.chat_format import ChatFormat, Trim
from textevolve.llm.chat_formats.tools import ToolFormat, pieces

_STRIP = {"none": "", "both": ".strip()", "left": ".lstrip()", "right": ".rstrip()"}


def to_jinja(format: ChatFormat) -> str:
    """The source of a Jinja chat template; one line, so that no white space slips in."""
    parts = (*_opening(format), *_checks(format), *_system(format), *_loop(format))
    return "".join((*parts, *_closing(format)))


def _q(text: str) -> str:
    """A text as a literal of Jinja."""
    return json.dumps(text, ensure_ascii=False)


def _out(*expressions: str) -> str:
    """Prints expressions joined; literals that are empty are left out."""
    kept = [one for one in expressions if one != '""']
    return "{{ " + " ~ ".join(kept) + " }}" if kept else ""


def _trimmed(expression: str, how: Trim) -> str:
    return expression + _STRIP[how]


def _refuse(condition: str, told: str) -> str:
    return f"{{% if {condition} %}}{{{{ raise_exception({_q(told)}) }}}}{{% endif %}}"


def _opening(format: ChatFormat) -> Iterator[str]:
    yield "{% set tools = tools if tools is defined and tools else none %}"
    default = format.system.default if format.system is not None else None
    yield "{% if messages and messages[0].role == 'system' %}"
    content = "messages[0].content"
    if format.system is not None:
        content = _trimmed(content, format.system.trim)
    yield f"{{% set system = {content} %}}{{% set rest = messages[1:] %}}"
    text = "none" if default is None else _q(_python_trim(default, format))
    yield f"{{% else %}}{{% set system = {text} %}}{{% set rest = messages %}}{{% endif %}}"
    yield "{% set ns = namespace(first=-1, last=-1, turn=0, begun=false, question=-1) %}"
    yield "{% for m in rest %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
    yield "{% if ns.first < 0 %}{% set ns.first = loop.index0 %}{% endif %}{% endif %}{% endfor %}"
    if format.writes_bos:
        yield _out(_q(format.bos))


def _python_trim(text: str, format: ChatFormat) -> str:
    return text.strip() if format.system is not None and format.system.trim == "both" else text


def _checks(format: ChatFormat) -> Iterator[str]:
    system, tools = format.system, format.tools
    if system is None:
        yield _refuse("system is not none", "There are no system messages in this format.")
    elif system.inside:
        aimed = (
            "rest[-1].role != 'user'"
            if system.placement == "last-user"
            else "rest[0].role != 'user'"
        )
        told = "The system message needs a message of the user."
        yield _refuse(f"system is not none and (not rest or {aimed})", told)
    if tools is None or tools.placement is None:
        yield _refuse("tools", "There are no declarations of tools in this format.")
    elif tools.placement != "system":
        told = "Tools need a first message of the user."
        yield _refuse("tools and (not rest or rest[0].role != 'user')", told)
    yield "{% for m in rest %}"
    later = system is not None and system.later
    known = ["user", "assistant", *(["system"] if later else [])]
    known += ["tool"] if tools is not None and tools.result else []
    yield _refuse(f"m.role not in {known}", "A message of this role cannot stand here.")
    yield from _tool_checks(tools)
    if format.alternate:
        yield "{% if m.role in ['user', 'assistant'] and not m.tool_calls %}"
        told = "User and assistant take turns, the user first."
        yield _refuse("(m.role == 'user') != (ns.turn % 2 == 0)", told)
        yield "{% set ns.turn = ns.turn + 1 %}{% endif %}"
    yield "{% endfor %}"


def _tool_checks(tools: ToolFormat | None) -> Iterator[str]:
    if tools is None or not tools.call:
        yield _refuse("m.tool_calls", "There are no calls of tools in this format.")
        return
    if not tools.text_beside:
        yield _refuse("m.tool_calls and m.content", "No text may stand beside calls of tools.")
    if tools.single_call:
        yield _refuse("m.tool_calls and m.tool_calls|length > 1", "One call at a time.")
    if tools.id_length:
        told = f"Ids of calls have {tools.id_length} letters and digits."
        yield "{% for c in m.tool_calls or [] %}"
        yield _refuse(f"not c.id or c.id|length != {tools.id_length}", told) + "{% endfor %}"
        wrong = f"not m.tool_call_id or m.tool_call_id|length != {tools.id_length}"
        yield _refuse(f"m.role == 'tool' and ({wrong})", told)
    if tools.answer_before is not None:
        told = "The assistant answers the results of tools before anybody else speaks."
        before = "not loop.first and rest[loop.index0 - 1].role == 'tool'"
        yield _refuse(f"m.role in ['user', 'system'] and {before}", told)


def _declared(tools: ToolFormat) -> str:
    between = f"{{% if not loop.last %}}{_out(_q(tools.separator))}{{% endif %}}"
    if tools.style == "json":
        indent = "" if tools.indent is None else f"(indent={tools.indent})"
        each = f"{{{{ t | tojson{indent} }}}}"
    else:
        each = (
            '{{ \'{"type": "function", "function": {\' }}'
            "{% for key, value in t.function.items() if key != 'return' %}"
            "{{ '\"' ~ key ~ '\": ' ~ ('\"' ~ value ~ '\"' if value is string else value|tojson) }}"
            "{% if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ '}}' }}"
        )
    listed = f"{{% for t in tools %}}{each}{between}{{% endfor %}}"
    return _out(_q(tools.before)) + listed + _out(_q(tools.after))


def _begin(format: ChatFormat) -> str:
    """What stands before a turn."""
    if not format.separator:
        return ""
    between = f"{{% if ns.begun %}}{_out(_q(format.separator))}{{% endif %}}"
    return between + "{% set ns.begun = true %}"


def _system(format: ChatFormat) -> Iterator[str]:
    system, tools = format.system, format.tools
    if system is not None and system.absent:
        yield f"{{% if system is none %}}{_out(_q(system.absent))}{{% endif %}}"
    if system is None or system.inside:
        return
    here = tools is not None and tools.placement == "system"
    shown = "system is not none"
    if not system.written_empty:
        shown = "system"
    yield f"{{% if {shown}{' or tools' if here else ''} %}}" + _begin(format)
    yield _out(_q(system.before))
    if tools is not None and tools.system_mark:
        yield f"{{% if tools %}}{_out(_q(tools.system_mark))}{{% endif %}}"
    yield _out(_q(system.preamble)) + "{% if system is not none %}{{ system }}{% endif %}"
    if here and tools is not None:
        joint = f"{{% if system is not none %}}{_out(_q(tools.joint))}{{% endif %}}"
        yield f"{{% if tools %}}{joint}{_declared(tools)}{{% endif %}}"
    yield _out(_q(system.after)) + "{% endif %}"


def _loop(format: ChatFormat) -> Iterator[str]:
    system, tools = format.system, format.tools
    yield "{% for m in rest %}{% if m.role == 'user' %}" + _begin(format)
    yield from _user(format)
    if system is not None and system.later:
        text = _trimmed("m.content", system.trim)
        shown = "" if system.written_empty else f" and {text}"
        yield f"{{% elif m.role == 'system'{shown} %}}" + _begin(format)
        yield _out(_q(system.before), text, _q(system.after))
    if tools is not None and tools.result:
        yield "{% elif m.role == 'tool' %}" + "".join(_result(format, tools))
    yield "{% elif m.role == 'assistant' %}" + _begin(format)
    yield from _assistant(format)
    yield "{% endif %}{% endfor %}"


def _user(format: ChatFormat) -> Iterator[str]:
    system, tools, user = format.system, format.tools, format.user
    place = {"first-user": "ns.first", "last-user": "ns.last"}
    text = _trimmed("m.content", user.trim)
    yield f"{{% set text = {text} %}}"
    if system is not None and system.inside:
        lead = f"{_q(system.before)} ~ system ~ {_q(system.after)}"
        joined = {
            "content": f"{lead} ~ text",
            "whole": _trimmed(f"({lead} ~ m.content)", user.trim),
            "none": f"{lead} ~ m.content",
        }[system.joined_trim]
        here = f"system is not none and loop.index0 == {place[system.placement]}"
        yield f"{{% if {here} %}}{{% set text = {joined} %}}{{% endif %}}"
    declared = ""
    if tools is not None and tools.placement in place:
        here = f"tools and loop.index0 == {place[tools.placement]}"
        declared = f"{{% if {here} %}}{_declared(tools)}{{% endif %}}"
    opening = _out(_q(user.before))
    first = tools is not None and tools.placement == "last-user"
    yield declared + opening if first else opening + declared
    yield _out("text", _q(user.after))


def _result(format: ChatFormat, tools: ToolFormat) -> Iterator[str]:
    yield "{% if loop.first or rest[loop.index0 - 1].role != 'tool' %}"
    between = f"{{% else %}}{_out(_q(tools.results_separator))}{{% endif %}}"
    yield _begin(format) + _out(_q(tools.results_before)) + between
    names = {"content": "m.content", "json": "m.content|tojson", "id": "(m.tool_call_id or '')"}
    yield _filled(tools.result, names)
    yield "{% if loop.last or rest[loop.index0 + 1].role != 'tool' %}"
    yield _out(_q(tools.results_after)) + "{% endif %}"


def _filled(template: str, names: dict[str, str]) -> str:
    parts = pieces(template)
    return _out(*(_q(part) if n % 2 == 0 else names[part] for n, part in enumerate(parts)))


def _assistant(format: ChatFormat) -> Iterator[str]:
    turn, tools = format.assistant, format.tools
    yield "{% set text = m.content if m.content is string else '' %}"
    yield from _thoughts(format)
    text = _trimmed("text", turn.trim)
    plain = _out(_q(turn.before), text, _q(turn.after))
    if tools is None or not tools.call:
        yield plain
        return
    before = turn.before if tools.assistant_before is None else tools.assistant_before
    arguments = "c.function.arguments"
    names = {
        "name": "c.function.name",
        "arguments": f"({arguments} if {arguments} is string else {arguments}|tojson)",
        "id": "(c.id or '')",
    }
    yield "{% if m.tool_calls %}" + _out(_q(before), text)
    yield f"{{% if {text} %}}{_out(_q(tools.text_joint))}{{% endif %}}"
    yield _out(_q(tools.calls_before)) + "{% for c in m.tool_calls %}" + _filled(tools.call, names)
    yield f"{{% if not loop.last %}}{_out(_q(tools.calls_separator))}{{% endif %}}{{% endfor %}}"
    yield _out(_q(tools.calls_after), _q(turn.after))
    if tools.answer_before is not None:
        yield "{% elif not loop.first and rest[loop.index0 - 1].role == 'tool' %}"
        yield _out(_q(tools.answer_before), text, _q(turn.after))
    yield "{% else %}" + plain + "{% endif %}"


def _thoughts(format: ChatFormat) -> Iterator[str]:
    thoughts = format.thoughts
    if thoughts is None:
        return
    opening, closing, strip = _q(thoughts.opening), _q(thoughts.closing), _q(thoughts.strip)
    plain = "not m.tool_calls and (loop.first or rest[loop.index0 - 1].role != 'tool')"
    yield f"{{% if {plain if thoughts.plain_only else 'true'} %}}"
    yield "{% set thought = m.reasoning_content or '' %}"
    yield f"{{% if not thought and {closing} in text %}}"
    yield f"{{% set thought = text.split({closing})[0].split({opening})[-1] %}}"
    stripped = f".lstrip({strip})" if thoughts.strip else ""
    yield f"{{% set text = text.split({closing})[-1]{stripped} %}}{{% endif %}}"
    if thoughts.wrap:
        yield "{% set thought = thought.strip('\\n') %}"
        yield "{% if ns.last >= 0 and loop.index0 > ns.last and (loop.last or thought) %}"
        yield f'{{% set text = {opening} ~ "\\n" ~ thought ~ "\\n" ~ {closing} ~ "\\n\\n" ~ '
        yield "text.lstrip('\\n') %}{% endif %}"
    yield "{% endif %}"


def _closing(format: ChatFormat) -> Iterator[str]:
    tools = format.tools
    yield "{% if add_generation_prompt %}"
    if tools is not None and tools.answer_before is not None:
        yield "{% if messages[-1].role == 'tool' %}" + _out(_q(tools.answer_before)) + "{% else %}"
    prompt = _out(_q(format.generation))
    if not format.generation_after_assistant:
        prompt = f"{{% if messages[-1].role != 'assistant' %}}{prompt}{{% endif %}}"
    yield prompt
    if tools is not None and tools.answer_before is not None:
        yield "{% endif %}"
    yield "{% else %}" + _out(_q(format.ending)) + "{% endif %}"
