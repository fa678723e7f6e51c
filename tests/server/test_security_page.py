"""docs/security.md promises what tests hold, and names tests that are there."""

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "security.md"
PROMISES = {
    "On `127.0.0.1` no key is needed": "server/test_served_keys.py::test_on_this_machine_only",
    "`--keys` requires one there": "server/test_served_keys.py::test_a_key_is_asked_for_where",
    "On any other address a server": "server/test_client_keys.py::test_beyond_loopback_there_must",
    "`config keys add` prints the key once": "server/test_served_keys.py::test_the_command_shows",
    "Keys are 256 random bits": "server/test_client_keys.py::test_keys_are_long_random_and_not",
    "Clients send": "server/test_served_keys.py::test_every_path_asks_who_it_is",
    "Keys are stored with namespaces": "store/test_api_keys.py::",
    "`read`": "server/test_served_keys.py::test_scopes_are_asked_for",
    "`run`": "server/test_served_keys.py::test_scopes_are_asked_for",
    "`label`": "server/test_served_keys.py::test_every_path_asks_who_it_is",
    "`admin`": "server/test_memories_api.py::test_who_may_write_and_who_may_erase",
    "A key with `--namespace` sees": "server/test_resources_api.py::test_what_a_caller_does",
    "It ends with the last": "field/test_deleted_tenants.py::test_keys_end_with_namespace",
    "Such a key cannot set": "server/test_promised_limits.py::test_limited_admins_set_no_quota",
    "`--key-env NAME` adds": "server/test_client_keys.py::test_beyond_loopback_there_must",
    "A revoked or expired key": "server/test_client_keys.py::test_a_stream_ends_with_its_key",
    "requests a minute": "server/test_client_keys.py::test_requests_a_minute",
    "model tokens a minute": "server/test_served_keys.py::test_tokens_a_minute_are_counted",
    "open streams": "server/test_client_keys.py::test_streams_at_once",
    "tokens a day (UTC)": "laws/test_meter.py::test_who_has_spent_all_asks_nothing",
    "dollars, tokens, calls": "server/test_promised_limits.py::test_server_stops_at_its_limit",
    "Every call that a request causes": "laws/test_meter.py::test_a_request_is_charged",
    "A model or a judge has none": "field/test_deleted_tenants.py::test_each_namespace_is_charged",
    "Searches of memories pay": "server/test_memories_api.py::test_who_may_write_and_who_may",
    "Tokens are counted after": "server/test_served_keys.py::test_tokens_a_minute_are_counted",
    "Each server counts limits": "server/test_client_keys.py::test_requests_a_minute",
    "A namespace's usage is stored": "server/test_promised_limits.py::test_usage_is_stored",
    "Body:": "server/test_refused_requests.py::test_a_body_that_is_too_large_is_refused",
    "Compressed bodies": "server/test_refused_requests.py::test_an_odd_request_is_refused",
    "Address, headers": "server/test_refused_requests.py::test_an_odd_request_is_refused",
    "A parameter of the API given": "server/test_refused_requests.py::test_an_odd_request_is",
    "Bodies from 256 KiB": "server/test_promised_limits.py::test_large_bodies_leave_room",
    "Answer that the client": "server/test_guard.py::test_a_client_that_takes_nothing_is_let_go",
    "Connections:": "server/test_promised_limits.py::test_connections_have_a_limit",
    "With keys, pages ask": "server/test_sessions_browser.py::test_the_cookie_is_read_by_no_script",
    "The cookie is random": "server/test_sessions_browser.py::test_a_wrong_key_logs_nobody_in",
    "A session ends": "server/test_sessions_browser.py::test_a_session_ends_when_its_key_expires",
    "`Host` must be": "server/test_refused_requests.py::test_a_name_of_another_site_is_not",
    "`Origin` and `Sec-Fetch-Site`": "server/test_refused_requests.py::test_no_other_site_is_given",
    "Forms carry a CSRF": "server/test_sessions_browser.py::test_a_form_without_its_token_is",
    "Answers have a strict": "server/test_guard.py::test_every_answer_tells_browsers_what_not",
    "For TLS put a proxy": "server/test_promised_limits.py::test_named_proxies_are_trusted",
    "To publish the server below": "server/test_pages_below_a_path.py::test_links_stay_below_path",
    "Links, redirects, files": "field/test_proxies_before_servers.py::test_addresses_stay_below",
    "Clients of the API use": "server/test_pages_below_a_path.py::test_clients_ask_below_path",
    "Cookies are named after": "field/test_proxies_before_servers.py::test_cookies_of_servers",
    "A client cannot make": "server/test_hostile_studies.py::test_no_field_of_any_kind_leads_out",
    "It can name the models": "server/test_refused_requests.py::test_only_what_was_named_is_served",
    "Studies follow": "server/test_study_confinement.py::test_names_lead_nowhere_but_into",
    "Model endpoints cannot": "llm/test_client.py::test_a_redirect_is_not_followed",
    "Texts of models": "server/test_run_pages.py::test_texts_of_others_stay_texts",
    "Errors contain no keys": "server/test_client_keys.py::test_nothing_that_is_logged_or_answered",
}
"""The beginning of each promise, with the file and the beginning of the name of its test."""
NO_PROMISES = ("These rules hold", "Limits of one request", "Limits for slow clients")


def read_statements():
    """The sentences, items and rows of the sections that promise something."""
    text = PAGE.read_text()
    text = text[text.index("## Keys") : text.index("## Known gaps")]
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.startswith("#"):
            continue
        if paragraph.startswith("|"):
            yield from (row.strip("| ") for row in paragraph.splitlines()[2:])
            continue
        for item in re.split(r"(?:^|\n)- ", paragraph):
            is_item = "\n- " in paragraph or paragraph.startswith("- ")
            words = " ".join(item.split())
            yield from [words] if is_item else re.split(r"(?<=\.) (?=[A-Z`])", words)


def test_each_promise_has_its_test():
    statements = [each for each in read_statements() if each]
    known = (*PROMISES, *NO_PROMISES)
    assert [each for each in statements if not each.startswith(known)] == []
    assert [each for each in known if not any(text.startswith(each) for text in statements)] == []
    for place in PROMISES.values():
        file, _, name = place.partition("::")
        assert f"def {name or 'test'}" in (TESTS / file).read_text(), place


def test_each_test_that_the_page_names_is_there():
    name = re.findall(r"`((?:tests/)?[\w/]*test_\w+\.py)`", PAGE.read_text())
    assert len(name) > 20
    for file in name:
        path = TESTS.parent / file if "/" in file else TESTS / "server" / file
        assert path.exists(), file


def test_owasps_list_is_whole():
    rows = re.findall(r"^- \*\*API(\d+) ", PAGE.read_text(), re.MULTILINE)
    assert rows == [str(number) for number in range(1, 11)]
