// The search runs in a Worker, which browsers refuse to pages opened from the disk.
// There, a hidden frame does its work: same script, same messages.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.frame = frame
      this.ready = new Promise(done => (frame.onload = done))
      window.addEventListener("message", event => {
        if (event.source !== frame.contentWindow) return
        this.dispatchEvent(new MessageEvent("message", { data: event.data }))
        if (this.onmessage) this.onmessage(event)
      })
      const load = source => new Promise(done => {
        const script = document.createElement("script")
        script.src = source
        script.onload = done
        document.body.appendChild(script)
      })
      const inside = frame.contentWindow.document
      inside.open()
      inside.write(
        "<html><body><script>" +
        'postMessage = data => parent.postMessage(data, "*");' +
        `const load = ${load};` +
        "importScripts = (...all) => all.reduce((sum, one) => sum.then(() => load(one)), Promise.resolve())" +
        `<\/script><script src="${url}"><\/script></body></html>`
      )
      inside.close()
    }
    postMessage(data) {
      this.ready.then(() =>
        this.frame.contentWindow.dispatchEvent(
          new MessageEvent("message", { data: structuredClone(data) })))
    }
    terminate() { this.frame.remove() }
  }
