"""A browser without a window, driven through the pipe that Chromium offers (the Chrome DevTools Protocol). Standard library only."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time


class Browser:
    def __init__(self):
        self.profile = tempfile.mkdtemp()
        commands, self.output = os.pipe()
        self.input, answers = os.pipe()

        def prepare():
            # Chromium reads commands from descriptor 3 and writes answers to 4. Twice, in case the pipes have these numbers themselves.
            os.dup2(os.dup(answers), 24)
            os.dup2(os.dup(commands), 23)
            os.dup2(23, 3)
            os.dup2(24, 4)

        # Inside a container Chromium's own sandbox cannot be set up. The pages are ours.
        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             "--user-data-dir=" + self.profile, "about:blank"],
            close_fds=False, preexec_fn=prepare, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.events = []
        pages = [target for target in self.call("Target.getTargets")["targetInfos"] if target["type"] == "page"]
        self.session = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
        except (OSError, EOFError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def receive(self):
        while b"\0" not in self.buffer:
            data = os.read(self.input, 1 << 20)
            if not data:
                raise EOFError("the browser has ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.output, json.dumps(message).encode() + b"\0")
        number = self.number
        while True:
            answer = self.receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def run(self, script):
        """The value of a JavaScript expression; waits for promises."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def settle(self):
        """Waits for two frames: what was planned has been drawn then."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def open(self, path, width=1280, height=900, dark=False, scale=1, touch=False, view=""):
        """Opens a file, and returns what went wrong: exceptions, messages, and requests for anything but the file."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=touch)
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url="about:blank")
        self.events = []
        address = "file://" + os.path.abspath(path) + view
        self.call("Page.navigate", url=address)
        while self.run("document.readyState") != "complete" or self.run("location.protocol") != "file:":
            time.sleep(0.02)
        self.settle()
        return self.troubles(address)

    def troubles(self, address):
        found = []
        for event in self.events:
            method, parameters = event["method"], event["params"]
            if method in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening"):
                found.append(f"{method}: {json.dumps(parameters)[:500]}")
            if method == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith(("file://", "data:", "about:")):
                found.append("request: " + parameters["request"]["url"])
        return found

    def picture(self, path, selector=None):
        """A PNG of the screen, or of an element and what is in it."""
        options = {}
        if selector:
            box = self.run(f"(() => {{ const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                           "return { x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height }; })()")
            options = {"captureBeyondViewport": True, "clip": {**box, "scale": 1}}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **options)["data"]))

    # Input, as the browser would get it from devices.

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **text)
        self.settle()

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y, count=1):
        self.mouse("mouseMoved", x, y)
        for number in range(1, count + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.mouse(kind, x, y, button="left", clickCount=number)
        self.settle()

    def drag(self, x, y, to_x, to_y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        for step in range(1, 6):
            self.mouse("mouseMoved", x + (to_x - x) * step / 5, y + (to_y - y) * step / 5, button="left", buttons=1)
        self.mouse("mouseReleased", to_x, to_y, button="left", clickCount=1)
        self.settle()

    def touch(self, kind, *points):
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)])
        self.settle()
