"""What all pages share: the layout, and errors as pages."""

import pytest

pytestmark = pytest.mark.slow


def test_an_error_is_a_page_for_browsers_alone(serve, page, check_page, ask):
    url = serve(judge="probe")
    assert page.goto(f"{url}/nothing/<script>alert(1)</script>").status == 404
    assert page.get_by_role("heading", name="Not found").is_visible()
    page.said.clear()  # the console tells of the status
    check_page(page)
    status, said = ask(f"{url}/v1/nothing", Accept="text/html")
    assert (status, said["error"]["code"]) == (404, "not_found")
    assert ask(f"{url}/nothing")[0] == 404


def test_the_list_of_runs_is_there(serve, page, check_page):
    page.goto(serve(judge="probe"))
    assert page.get_by_role("heading", name="Runs").is_visible()
    check_page(page)
