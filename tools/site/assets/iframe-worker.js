// Browsers start no worker from a file; there the search runs in an empty frame of the page.
if (location.protocol === "file:") {
  self.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const load = (source) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          script.src = source;
          script.onload = done;
          script.onerror = failed;
          inside.document.body.append(script);
        });
      inside.importScripts = (...sources) => Promise.all(sources.map(load));
      inside.postMessage = (data) => this.tell(data);
      this.frame = frame;
      this.ready = load(String(url));
    }
    tell(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }
    postMessage(data) {
      const inside = this.frame.contentWindow;
      this.ready.then(() => {
        const event = new inside.MessageEvent("message", { data });
        inside.dispatchEvent(event);
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
}
