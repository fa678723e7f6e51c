"""Spans and logs as OTLP's JSON has them, written for the tests beside it."""


def wrap(value):
    """A value as OTLP writes it."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case list():
            return {"arrayValue": {"values": [wrap(one) for one in value]}}
        case _:
            pairs = [{"key": k, "value": wrap(v)} for k, v in value.items()]
            return {"kvlistValue": {"values": pairs}}


def attributes(values):
    return [{"key": key, "value": wrap(value)} for key, value in values.items()]


def span(id, start=0, end=1, *, name="", parent="", trace="t", events=(), status=None, **values):
    names = {key.replace("__", "."): value for key, value in values.items()}
    return {
        "traceId": trace,
        "spanId": id,
        "parentSpanId": parent,
        "name": name or id,
        "startTimeUnixNano": str(start * 10**9),
        "endTimeUnixNano": str(end * 10**9),
        "attributes": attributes(names),
        "events": [{"name": n, "attributes": attributes(a)} for n, a in events],
        **({"status": status} if status else {}),
    }


def chat(id, start=0, end=1, **more):
    return span(id, start, end, gen_ai__operation__name="chat", **more)


def document(*spans):
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def log(name, of, body=None, *, trace="t", time=0, event_name=True, **values):
    """A record that was written in the span `of`, in none where it is empty."""
    names = {key.replace("__", "."): value for key, value in values.items()}
    return {
        **({"traceId": trace, "spanId": of} if of else {}),
        **({"eventName": name} if event_name else {}),
        "observedTimeUnixNano": str(time),
        "attributes": attributes(names if event_name else {**names, "event.name": name}),
        **({} if body is None else {"body": wrap(body)}),
    }


def logs(*records):
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": list(records)}]}]}
