// Shows a lease's desktop. The ticket in the address is handed in once, for a cookie that scripts cannot read.

const byId = (id) => document.getElementById(id);

function say(text) {
    byId("status").textContent = text;
}

async function answered(path, options) {
    const reply = await fetch(path, options);
    if (!reply.ok) {
        const body = await reply.json().catch(() => ({}));
        throw new Error(body.detail || `The service answered ${reply.status}.`);
    }
    return reply;
}

async function handTicketIn() {
    const ticket = location.hash.slice(1);
    if (!ticket) {
        return; // the page was loaded again: the cookie is there
    }
    history.replaceState(null, "", location.pathname);
    await answered("ticket", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ ticket }),
    });
}

async function whyItEnded() {
    try {
        await answered("state");
        return "The connection ended. Load the page again to go on.";
    } catch (error) {
        return `The view ended: ${error.message}`;
    }
}

function allowClipboard(rfb) {
    byId("clipboard").hidden = false;
    byId("clipboard").addEventListener("submit", (event) => {
        event.preventDefault();
        rfb.clipboardPasteFrom(byId("text").value);
        byId("text").value = "";
        rfb.focus();
    });
}

async function show() {
    await handTicketIn();
    const state = await (await answered("state")).json();
    document.title = `Desktop of lease ${state.lease_id}`;
    byId("question").textContent = state.question;
    byId("mode").textContent = state.help ? "You can use this desktop; the record says so once you do" : "View only";
    document.querySelector("header").classList.toggle("helping", state.help);

    const { default: RFB } = await import("./novnc/core/rfb.js");
    const address = new URL("socket", location.href);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    address.hash = "";
    const rfb = new RFB(byId("screen"), address.href, { shared: true });
    rfb.viewOnly = !state.help; // for the pointer's shape; what may pass is decided by the service
    rfb.scaleViewport = true;
    rfb.addEventListener("connect", () => say("Connected"));
    rfb.addEventListener("disconnect", async () => say(await whyItEnded()));
    if (state.help) {
        allowClipboard(rfb);
    }
}

show().catch((error) => say(error.message));
