// Pages that are opened from a folder may not start workers, which the search needs: there it works in a hidden frame.
// Messages are copied, as between threads: the search changes those that it receives.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (message) => {
        const data = structuredClone(message);
        setTimeout(() => this.onmessage?.({ data }));
      };
      const script = inner.document.createElement("script");
      script.src = url;
      this.ready = new Promise((loaded) => script.addEventListener("load", loaded));
      inner.document.body.append(script);
    }

    postMessage(message) {
      const data = structuredClone(message);
      this.ready.then(() => this.frame.contentWindow?.onmessage?.({ data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
