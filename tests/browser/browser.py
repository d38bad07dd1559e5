"""Debian's Chromium, headless, driven by Selenium: one window on an empty profile.

Every request of the window and every message of its console is kept, so that a test can
say at its end that the page asked no other host for anything and complained of nothing.
"""

import base64
import json
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

OPTIONS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--disable-dev-shm-usage --hide-scrollbars"
).split()
PATIENCE = 60  # seconds; only a page that is broken needs them


# In one script, for the page may replace an element between two calls.
SEEN_TEXT = """
const e = document.querySelector(arguments[0]);
return e && (e === document.body || e.offsetParent) ? e.innerText.trim() : '';
"""


class Failure(Exception):
    pass


def require(condition, text):
    if not condition:
        raise Failure(text)


class Browser:
    def __init__(self, profile, downloads):
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for option in OPTIONS:
            options.add_argument(option)
        options.add_argument(f"--user-data-dir={profile}")
        options.set_capability(
            "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
        )
        self.driver = webdriver.Chrome(
            options=options, service=Service("/usr/bin/chromedriver")
        )
        self.requests, self.complaints = [], []
        self.command(
            "Browser.setDownloadBehavior",
            behavior="allow",
            downloadPath=str(downloads),
        )
        self.resize(1280, 900)

    def command(self, name, **arguments):
        return self.driver.execute_cdp_cmd(name, arguments)

    def close(self):
        self.driver.quit()

    # -- the window -----------------------------------------------------------------------

    def resize(self, width, height):
        self.size = (width, height)
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def prefer(self, scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path):
        """The whole page, however high it is."""
        width, height = self.size
        self.resize(width, self.run("return document.documentElement.scrollHeight"))
        time.sleep(1)  # what came into sight is fetched and drawn
        picture = self.command("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(picture["data"]))
        self.resize(width, height)

    # -- the page -------------------------------------------------------------------------

    def open(self, address):
        self.driver.get(address)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def click(self, element):
        """Where it can be clicked: not below the bar at the top, which stays in sight."""
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def text(self, selector):
        """Of the first element: what is seen of it, empty when it is hidden or missing."""
        return self.run(SEEN_TEXT, selector)

    def wait(self, question, text, seconds=PATIENCE):
        """The first true answer of question(); a failure that says `text` without one."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = question()
            if answer:
                return answer
            time.sleep(0.1)
        raise Failure(f"{text}: not within {seconds} s; the page says:\n{self.text('body')[:1500]}")

    # -- what it did ----------------------------------------------------------------------

    def collect(self):
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
        for entry in self.driver.get_log("browser"):
            if entry["level"] in ("SEVERE", "WARNING"):
                self.complaints.append(entry["message"])

    def require_quiet(self, *allowed):
        """No complaint on the console, no request but to addresses that begin so."""
        self.collect()
        require(not self.complaints, f"the console says {self.complaints[:3]}")
        own = (*allowed, "data:", "chrome:", "chrome-untrusted:")  # chrome: the browser's empty tab
        foreign = [url for url in self.requests if not url.startswith(own)]
        require(not foreign, f"the page asked {foreign[:3]}")
        require(self.requests, "no request was seen: they are not being counted")
