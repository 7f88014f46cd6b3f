// The site's search runs in a worker. Browsers start no worker for pages that are read from the disk, so there the
// worker's script runs in a hidden frame of the page.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    this.inside = this.frame.contentWindow;
    const page = this.inside.document;
    page.open();
    page.write("<!doctype html><body></body>");
    page.close();
    this.inside.postMessage = (data) => setTimeout(() => this.hand(this, data));
    const script = page.createElement("script");
    script.src = new URL(url, location.href).href;
    this.ready = new Promise((loaded) => (script.onload = loaded));
    script.onerror = (event) => this.onerror?.(event);
    page.body.append(script);
  }

  hand(receiver, data) {
    const event = new MessageEvent("message", { data });
    receiver.dispatchEvent(event);
    if (receiver === this) this.onmessage?.(event);
  }

  postMessage(data) {
    this.ready.then(() => this.hand(this.inside, data));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
