"""What a browser would send of a page's forms."""

from tests.goldens.forms import HOSTILE, forms_of

PAGE = """
<form method="get" action="/find"><input name="q"></form>
<form method="post" action="/save" id="save">
<input type="hidden" name="csrf" value="token"><input name="name" value="old">
<input type="checkbox" name="right" value="r"><input type="checkbox" name="right" value="w" checked>
<select name="role"><option value="a">A</option><option value="b" selected>B</option></select>
<textarea name="text">
more</textarea>
<button name="decision" value="allow">Allow</button>
<button formaction="/try">Try</button>
</form>
<input name="outside" form="save" value="too">
"""


def test_forms_that_change_something_are_found_with_their_fields() -> None:
    save, attempt = forms_of(PAGE)

    assert (save.action, attempt.action) == ("/save", "/try")
    assert save.names == attempt.names
    assert save.names == ("csrf", "name", "right", "role", "text", "decision", "outside")
    assert save.untouched() == [
        ("csrf", "token"),
        ("name", "old"),
        ("right", "w"),
        ("role", "b"),
        ("text", "more"),
        ("decision", "allow"),
        ("outside", "too"),
    ]


def test_hidden_fields_stay_whatever_is_typed() -> None:
    form = forms_of(PAGE)[0]

    assert dict(form.emptied()) == {
        "csrf": "token",
        "name": "",
        "role": "",
        "text": "",
        "decision": "allow",
        "outside": "",
    }
    assert {name for name, value in form.hostile() if value != HOSTILE} == {"csrf", "decision"}
    assert dict(form.filled({"name": "new", "csrf": "no"})) == {
        "csrf": "token",
        "name": "new",
        "right": "w",
        "role": "b",
        "text": "more",
        "decision": "allow",
        "outside": "too",
    }
