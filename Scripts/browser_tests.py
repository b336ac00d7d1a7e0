"""Tests of the pages of recordings in a browser. Started by Scripts/test-pictures with the folder of the pages."""

import os
import sys

from browser import Browser

folder = sys.argv[1]
sources = os.path.join(os.path.dirname(__file__), "../Sources/EventLoopObserving/Pictures/Page")
failures = []
browser = None


def expect(condition, claim):
    if not condition:
        print(f"✘ {claim}")
        failures.append(claim)


def show(name, **options):
    troubles = browser.open(os.path.join(folder, name + ".html"), **options)
    expect(not troubles, f"{name} opens without errors and requests: {troubles}")


def number(script):
    return float(browser.run(script) or "nan")


def view():
    data = "document.getElementById('picture').dataset"
    return number(data + ".from"), number(data + ".to")


def text(selector):
    return browser.run(f"document.querySelector('{selector}').innerText")


def center(selector):
    box = browser.run(f"(() => {{ const element = document.querySelector('{selector}'); element.scrollIntoView({{ block: 'nearest' }});"
                      "const box = element.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()")
    return box[0], box[1]


def pages():
    show("empty")
    expect("Nothing was recorded" in text("body") and not browser.run("document.querySelector('.needs-events').offsetHeight"),
           "a page of nothing says so, and shows no empty tables")
    for name, least in (("small", 100), ("large", 65_000)):
        show(name)
        expect(number("document.documentElement.dataset.events") >= least, f"{name} has all events")
        expect(number("document.getElementById('picture').dataset.drawn") > 50, f"{name} draws something")
        for key in "++-":
            browser.run("document.getElementById('timeline').focus()")
            browser.key(key)
        milliseconds = number("document.getElementById('picture').dataset.milliseconds")
        print(f"  {name}: drawn again in {milliseconds:.0f} ms")
        expect(milliseconds < 250, f"{name} is drawn in a quarter of a second")
        expect(browser.run("document.querySelectorAll('#slowest tbody tr').length") == 15, f"{name} has a table of the slowest")


def files():
    """The page as its own files, of which index.html names the others."""
    troubles = browser.open(os.path.join(sources, "index.html"))
    expect(not troubles, f"index.html opens without errors and requests: {troubles}")
    expect(number("document.documentElement.dataset.events") == 32, "index.html shows its sample")
    expect(browser.run("document.querySelectorAll('script[src]').length") == 7, "the script is in seven files")


def cut():
    show("cut")
    expect("90" in text("#tiles > :nth-child(1)"), "figures cover the time whose events are there: asleep")
    expect("1 ms" in text("#tiles > :nth-child(4)"), "figures cover the time whose events are there: longest without the kernel")


def hostile():
    show("hostile")
    expect(browser.run("document.querySelectorAll('script').length") == 2, "no text becomes a script")
    expect(browser.run("document.querySelectorAll('img, iframe, [onerror], [onclick]').length") == 0, "no text becomes an element")
    expect("</script >" in browser.run("document.title"), "the title is text")
    expect("<img src=x onerror=alert(1)>" in text("#slowest"), "a label is text")


def keyboard():
    show("small")
    everything = view()
    browser.run("document.getElementById('timeline').focus()")
    browser.key("+")
    zoomed = view()
    expect(zoomed[1] - zoomed[0] < 0.6 * everything[1], "+ zooms in")
    browser.key("ArrowRight")
    expect(view()[0] > zoomed[0], "an arrow key moves the view")
    browser.key("0")
    expect(view() == everything, "0 shows everything")
    before = text("#details")
    browser.key("n")
    expect(text("#details") != before, "n selects the next event")
    browser.key("ArrowUp")
    expect(text("#details").startswith("Pass"), "arrow up selects what it is in")
    browser.key("Enter")
    expect(view()[1] - view()[0] < 0.2 * everything[1], "Enter zooms to the selected event")
    browser.key("Escape")
    expect("Nothing is selected" in text("#details"), "Escape selects nothing")


def mouse():
    show("small")
    everything = view()
    x, y = center("#timeline")
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-200)
    browser.settle()
    expect(view() == everything, "the wheel alone does not zoom a timeline that nobody has clicked")
    browser.run("scrollTo(0, 0)")
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-200, modifiers=2)
    browser.settle()
    zoomed = view()
    expect(zoomed[1] - zoomed[0] < 0.9 * everything[1], "Ctrl and the wheel zoom")
    browser.drag(x, y, x - 200, y)
    expect(view()[0] > zoomed[0], "a drag moves the view")
    browser.click(*center("[data-action=all]"))
    expect(view() == everything, "the button shows everything")
    left, top = browser.run("(() => { const box = document.getElementById('timeline').getBoundingClientRect(); return [box.x, box.y]; })()")
    browser.mouse("mouseMoved", left + 300, top + 22 + 24 + 10)
    browser.settle()
    expect(text("#tip").startswith("Run"), "a tip names what is under the pointer")
    browser.click(left + 300, top + 22 + 24 + 10)
    expect(text("#details").startswith("Run"), "a click selects")
    browser.click(*center("#slowest .go"))
    expect(view()[1] - view()[0] < 0.2 * everything[1], "a click on one of the slowest zooms to it")
    browser.click(*center("#places .go"))
    expect(browser.run("document.querySelectorAll('#places [aria-pressed=true]').length") == 1, "a click on a place highlights it")


def arrows():
    show("pair")
    expect("answer" in text("#slowest") and "worker" in text("#slowest"), "the tables name the loops")
    browser.run("[...document.querySelectorAll('#slowest tr')].find(row => row.innerText.includes('answer')).querySelector('.go').click()")
    browser.settle()
    expect("Came from ask" in text("#details"), "a callout says what it came from")
    browser.run("[...document.querySelectorAll('#details .go')].find(link => link.innerText.includes('ask')).click()")
    browser.settle()
    expect("Gave work to answer" in text("#details"), "a callout says what it gave work to")
    painted = "document.getElementById('overlay').getContext('2d').getImageData(0, 0, 4000, 4000).data.some(value => value > 0)"
    expect(browser.run(painted), "the arrow is drawn")


def screens():
    show("pair")
    light = browser.run("getComputedStyle(document.body).backgroundColor")
    show("pair", dark=True)
    expect(browser.run("getComputedStyle(document.body).backgroundColor") != light, "the page has a dark look")
    for name in ("small", "pair", "hostile"):
        show(name, width=360, height=740, scale=2, touch=True)
        expect(browser.run("document.documentElement.scrollWidth") <= 360, f"{name} fits a narrow screen")
    show("small", width=360, height=740, scale=2, touch=True)
    everything = view()
    browser.run("document.getElementById('timeline').scrollIntoView()")
    x, y = center("#timeline")
    browser.touch("touchStart", (x - 20, y), (x + 20, y))
    for distance in (40, 60, 80, 100):
        browser.touch("touchMove", (x - distance, y), (x + distance, y))
    browser.touch("touchEnd")
    expect(view()[1] - view()[0] < 0.5 * everything[1], "a pinch zooms")
    show("small", view="#10000-20000")
    expect(view() == (10000, 20000), "the address names the view")


with Browser() as browser:
    for test in (files, pages, cut, hostile, keyboard, mouse, arrows, screens):
        print(test.__name__)
        test()
print(f"{len(failures)} failures" if failures else "all passed")
sys.exit(1 if failures else 0)
