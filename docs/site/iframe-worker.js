// Search over file://, where browsers refuse to start workers: run the same script in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      frame.contentDocument.open();
      frame.contentDocument.close();
      this.inside = frame.contentWindow;
      // What the script posts goes out, what is posted to it goes in, both when the present task is done.
      this.inside.postMessage = (data) =>
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      this.ready = new Promise((done) => {
        const script = frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = done;
        frame.contentDocument.body.appendChild(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
