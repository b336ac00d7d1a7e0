"""Makes the pictures of docs/observing.md from the page of a real recording. Started by Scripts/test-pictures --update-images."""

import os
import sys

from browser import Browser

pages, images = sys.argv[1:]
page = os.path.join(pages, "server.html")
os.makedirs(images, exist_ok=True)


def picture(name, selector):
    browser.picture(os.path.join(images, name), selector)


def click_first(table, words):
    """Clicks the first row of a table that has one of the words."""
    browser.run(f"[...document.querySelectorAll('{table} tbody tr')].find(row => row.innerText.includes('{words}')).querySelector('.go').click()")
    browser.settle()


with Browser() as browser:
    # As on a screen, without the part below it.
    browser.open(page, width=1080, height=740)
    browser.picture(os.path.join(images, "timeline.png"))
    click_first("#slowest", "usage report")
    picture("timeline-slow.png", "section.card")

    # A search: the server gave it to the other loop, which gave back the answer.
    browser.open(page, width=1080, height=640)
    browser.run("document.getElementById('timeline').focus()")
    browser.run("[...document.querySelectorAll('#places tbody tr')].find(row => row.innerText.includes('search') || "
                "row.innerText.includes('Perform')).querySelectorAll('.go')[1].click()")
    browser.settle()
    for _ in range(2):
        browser.key("-")
    picture("timeline-arrows.png", "section.card")

for name in sorted(os.listdir(images)):
    size = os.path.getsize(os.path.join(images, name))
    print(f"{name}: {size // 1000} kB")
    if size > 200_000:
        sys.exit(f"{name} is too large for a page")
