#!/usr/bin/env python3
"""The board's page in a real browser, on a run that trains, on finished and on hostile ones.

    check_board.py PATH/TO/trefoil DIRECTORY_OF_PICTURES

The steps are those of somebody who watches a run: opens the page while it trains, reads a
curve, compares with an earlier run, zooms, turns the light out, takes the page to a phone,
saves it, and looks at it without a network; then the run is killed.
"""

import pathlib
import re
import sys
import tempfile
import time
import urllib.request

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from browser import Browser, require
from runs import HOSTILE_NAME, MARKUP, Runs

LOSS = '[data-key="loss"] canvas'
PAGE_BYTES = 100_000  # of the whole page, packed
DEAD_SECONDS = 10

# How many pixels of the loss's canvas have a colour of their own: those of curves do.
COUNT_COLOURED = """
const c = document.querySelector('[data-key="loss"] canvas');
const copy = Object.assign(document.createElement('canvas'), {width: c.width, height: c.height});
const pen = copy.getContext('2d', {willReadFrequently: true});
pen.drawImage(c, 0, 0);
const p = pen.getImageData(0, 0, c.width, c.height).data;
let n = 0;
for (let i = 0; i < p.length; i += 4)
    if (p[i + 3] > 60 && Math.max(p[i], p[i+1], p[i+2]) - Math.min(p[i], p[i+1], p[i+2]) > 70) n++;
return n;
"""


def label(browser):
    return browser.find(LOSS).get_attribute("aria-label") or ""


def last_x(browser):
    """Where the loss's curve ends, as the chart tells those who do not see it."""
    found = re.search(r"live: [^;]* at ([0-9\u202f]+)", label(browser))
    return int(found[1].replace("\u202f", "")) if found else 0


def shown_state(browser):
    return browser.text("#summary .hero .badge")


def look_at(browser, name):
    for button in browser.driver.find_elements("css selector", "#runs .name"):
        if button.text == name:
            browser.click(button)
            return
    require(False, f"no run is called {name!r}")


def draw(browser, name, is_on=True):
    for box in browser.driver.find_elements("css selector", "#runs tbody input"):
        if box.get_attribute("aria-label") == f"Draw {name}" and box.is_selected() != is_on:
            browser.click(box)


# -- the steps ------------------------------------------------------------------------------


def check_size(address, token):
    total = 0
    for path in ("", "board.css", "board.js"):
        request = urllib.request.Request(address + path, headers={
            "Accept-Encoding": "gzip", "Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request) as answer:
            require(answer.headers["Content-Encoding"] == "gzip", f"/{path} is not packed")
            total += len(answer.read())
    require(total <= PAGE_BYTES, f"the page is {total} bytes, packed")
    return f"{total / 1000:.0f} kB"


def check_live(browser, address, token):
    browser.open(f"{address}?token={token}")
    browser.wait(lambda: "Training" in shown_state(browser), "a run that trains")
    require("token" not in browser.run("return location.href"), "the token stays in the address")
    require(browser.text("#summary h2") == "live", "not the live run is looked at first")
    browser.wait(lambda: last_x(browser) > 0, "a curve")
    first = last_x(browser)
    browser.wait(lambda: last_x(browser) > first, "the curve grows")
    require(browser.run(COUNT_COLOURED) > 300, "no curve is drawn")


def check_first_screen(browser):
    """Each question that the first screen is there to answer has its answer."""
    answers = {
        "how far": ("#summary .facts", r"Step\n[\d\u202f]+\nof 1\u202f000\u202f000"),
        "how many tokens": ("#summary .facts", r"Tokens\n[\d.]+"),
        "how long still": ("#summary .facts", r"Time left\n\d+\s(s|min|h|d)"),
        "the loss": (".tile:nth-child(1)", r"\d\.\d+"),
        "how fast": (".tile:nth-child(2)", r"[\d.]+\s?k?\s*tokens/s"),
        "how fast it could be": (".tile:nth-child(2)", r"MFU \d.* FLOP/s|MFU \d.*[kMGT]FLOP/s"),
        "what limits it": (".limit", r"\w+ \w+"),
        "where it runs": (".where", r"dp2"),
        "the ranks": ("#ranks", r"Ranks"),
        "what happened": ("#events", r"Started"),
    }
    for what, (selector, pattern) in answers.items():
        browser.wait(lambda: re.search(pattern, browser.text(selector)), what)


def check_compare(browser):
    draw(browser, "finished")
    browser.wait(lambda: "max_lr" in browser.text("#diff"), "the key that differs")
    browser.wait(lambda: "finished: " in label(browser), "two curves")
    names = browser.run("return [...document.querySelectorAll('#diff th')].map((e) => e.innerText.trim())")
    rows = browser.run("return [...document.querySelectorAll('#diff tbody tr')]"
                       ".map((r) => [...r.children].map((e) => e.innerText.trim()))")
    found = [dict(zip(names, row)) for row in rows if "max_lr" in row[0]]
    require([(row["live"], row["finished"]) for row in found] == [("0.001", "0.005")],
            f"the values of the key that differs are {found}")
    require(browser.text('[data-key="loss"] .now').split() == ["live", "finished"],
            "the curves are not named")


def check_reading(browser):
    """The pointer and the keyboard read values, zoom, and go back."""
    canvas = browser.find(LOSS)
    browser.run("arguments[0].scrollIntoView({block: 'center'})", canvas)
    ActionChains(browser.driver).move_to_element(canvas).perform()
    browser.wait(lambda: "Step" in browser.text('[data-key="loss"] .tip'), "values at the pointer")
    end = last_x(browser)
    ActionChains(browser.driver).move_to_element_with_offset(canvas, -300, 0).click_and_hold(
    ).move_by_offset(150, 0).release().perform()
    browser.wait(lambda: browser.text("#curve-bar").endswith("Reset zoom"), "a zoom by dragging")
    browser.wait(lambda: 0 < last_x(browser) < end, "the zoomed curve")
    canvas.send_keys("0")
    browser.wait(lambda: last_x(browser) >= end, "the whole curve again")
    canvas.send_keys(Keys.HOME)
    browser.wait(lambda: re.search(r"Step \d\b", browser.text('[data-key="loss"] .tip')),
                 "values by the keyboard")
    for axis in ("tokens", "time", "flops", "step"):
        browser.click(browser.find(f'[data-value="{axis}"]'))
        word = {"flops": "floating-point"}.get(axis, axis)
        browser.wait(lambda: f"over {word}" in label(browser) and browser.run(COUNT_COLOURED) > 100,
                     f"curves over {axis}")


def check_hostile(browser):
    look_at(browser, HOSTILE_NAME)
    browser.wait(lambda: browser.text("#summary h2") == HOSTILE_NAME, "a name that is markup")
    browser.wait(lambda: MARKUP in browser.text("#events"), "an error that is markup")
    browser.wait(lambda: MARKUP in browser.text("#samples"), "a text that is markup")
    require(browser.run("return document.querySelectorAll('main img, main script, main b b').length") == 0,
            "text of a run has become markup")
    draw(browser, HOSTILE_NAME, False)
    look_at(browser, "live")
    browser.wait(lambda: browser.text("#summary h2") == "live", "the live run again")


def check_pictures(browser, pictures):
    browser.prefer("light")
    browser.screenshot(pictures / "light.png")
    browser.prefer("dark")
    browser.wait(lambda: browser.run("return document.documentElement.dataset.shade") == "dark",
                 "the dark theme that the system prefers")
    browser.screenshot(pictures / "dark.png")
    browser.click(browser.find("#theme"))
    require(browser.run("return document.documentElement.dataset.shade") == "light",
            "the switch does not turn the light on")
    browser.prefer("light")
    browser.resize(360, 740)
    browser.screenshot(pictures / "phone.png")
    require(browser.run("return document.documentElement.scrollWidth") <= 360,
            "on a phone the page is wider than the screen")
    browser.resize(1280, 900)


def check_save(browser, downloads):
    """The file that "Save page" gives."""
    browser.click(browser.find("#save"))
    return browser.wait(lambda: [p for p in downloads.iterdir() if p.suffix == ".html"],
                        "the saved page")[0]


def check_saved(browser, page, pictures):
    """Without a network, from a file."""
    browser.command("Network.enable")
    browser.command("Network.emulateNetworkConditions", offline=True, latency=0,
                    downloadThroughput=0, uploadThroughput=0)
    browser.open(page.as_uri())
    browser.wait(lambda: "saved" in browser.text("#link"), "a page that says it is saved")
    browser.wait(lambda: last_x(browser) > 0, "a saved curve")
    require(browser.run(COUNT_COLOURED) > 300, "no saved curve is drawn")
    browser.wait(lambda: "max_lr" in browser.text("#diff"), "a saved difference")
    require("Started" in browser.text("#events"), "no saved events")
    require(not browser.text("#save"), "a saved page offers to save it")
    browser.screenshot(pictures / "saved.png")
    browser.require_quiet("file:")


def check_dead(browser, kill, pictures):
    require("Training" in shown_state(browser), f"the run is {shown_state(browser)}")
    kill()
    killed = time.monotonic()
    browser.wait(lambda: "Dead" in shown_state(browser), "a killed run is dead", DEAD_SECONDS)
    seconds = time.monotonic() - killed
    browser.screenshot(pictures / "dead.png")
    return f"{seconds:.1f} s after its death"


def check(trefoil, work, pictures):
    runs = Runs(trefoil, work)
    downloads, began = work / "downloads", time.monotonic()
    downloads.mkdir()

    def passed(what):
        print(f"browser: {time.monotonic() - began:5.1f} s: {what}", flush=True)

    browser = Browser(work / "profile", downloads)
    try:
        runs.train("finished", **{"Optimizer.lr.max_lr": "0.005"})
        runs.make_hostile()
        live = runs.train_on("live")
        address, token = runs.open_board()
        passed("the page is " + check_size(address, token))
        check_live(browser, address, token)
        passed("a live run is shown, and its curve grows")
        check_first_screen(browser)
        passed("the first screen answers its questions")
        check_compare(browser)
        passed("two runs are compared")
        check_reading(browser)
        passed("curves are read, zoomed and drawn over every axis")
        check_hostile(browser)
        passed("markup in a run's files is text")
        check_pictures(browser, pictures)
        passed("light, dark, and on a phone")
        saved = check_save(browser, downloads)
        passed("a killed run is shown dead " + check_dead(browser, lambda: runs.kill(live), pictures))
        browser.require_quiet(address)
        browser.close()
        browser = Browser(work / "profile_offline", downloads)
        check_saved(browser, saved, pictures)
        passed("the saved page works without a network")
    finally:
        browser.close()
        runs.close()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    pictures = pathlib.Path(sys.argv[2])
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        check(sys.argv[1], pathlib.Path(work), pictures)


if __name__ == "__main__":
    main()
