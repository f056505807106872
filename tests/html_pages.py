"""Reading pages strictly, and texts that try to break out of them."""

from html.parser import HTMLParser
from xml.parsers import expat

HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "</title></style></svg><script>",
    "javascript:alert(1)",
    "שלום \u202e evil \u2066",
    "a\x00\x07\x1b[2K\r\nOWNED\ud800\ufffe",
    "&lt;b&gt; &amp; ]]>",
    "W" * 10_000,
    "Z" + "\u0336\u0489" * 5_000,
    "https://user:secret-password@host/?token=secret-token",
)


class Tags(HTMLParser):
    """Collects tags, checks that they close in order, and keeps the text."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.attributes, self.words = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)


def parse(page):
    """Read a page strictly, twice: as XML and as HTML."""
    page.encode("utf-8")
    expat.ParserCreate().Parse(page, True)
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    tags.text = " ".join(" ".join(tags.words).split())
    return tags


def ids_of(tags):
    return [value for name, value in tags.attributes if name == "id"]


def require_harmless(page):
    """Fail where a hostile text has become more than text, or made a page of megabytes."""
    assert set(parse(page).tags).isdisjoint({"script", "img", "b"})
    assert not {"\x00", "\x07", "\x1b", "\u202e", "\u2066", "\ufffe"} & set(page)
    assert "secret-" not in page
    assert len(page) < 200_000
