// Browsers start no workers in pages that are opened from a folder. Here a worker's script runs in a hidden frame instead,
// so that the search works there, too. The offline plugin looks for a file of this name; without it, it would fetch one.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe")
    #loaded

    constructor(address) {
      super()
      this.#frame.hidden = true
      document.body.append(this.#frame)
      const { contentDocument, contentWindow } = this.#frame
      contentDocument.open()
      contentDocument.write("<body>")
      contentDocument.close()
      const load = (script) =>
        new Promise((resolve, reject) => {
          const element = Object.assign(contentDocument.createElement("script"), { onload: resolve, onerror: reject, src: script })
          contentDocument.body.append(element)
        })
      contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      contentWindow.importScripts = (...scripts) => Promise.all(scripts.map(load))
      this.#loaded = load(address)
    }

    postMessage(data) {
      this.#loaded.then(() => this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.#frame.remove()
    }
  }
}
