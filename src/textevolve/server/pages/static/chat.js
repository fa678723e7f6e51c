// A chat: sends a message as any client of the API does, and writes the answer as it comes; then the
// page is loaded anew, with what was recalled. Texts enter by textContent alone.
"use strict";
(() => {
  const [form, box, log, send, stop, failure] =
    ["say", "text", "log", "send", "stop", "failure"].map((id) => document.getElementById(id));
  const { agent, session } = form.dataset;
  const root = document.querySelector('meta[name="root"]').content; // below which a proxy publishes the server
  let reading = null; // what ends the request that is under way

  // What the end of the messages is below the part of the window that the field for writing leaves.
  const below = () => log.getBoundingClientRect().bottom + form.offsetHeight - innerHeight;
  const toEnd = () => scrollBy(0, below());

  const article = (role, name, text) => {
    const made = document.createElement("article");
    made.className = `said-by ${role}`;
    const head = made.appendChild(document.createElement("p"));
    head.className = "speaker";
    head.appendChild(document.createElement("b")).textContent = name;
    const body = made.appendChild(document.createElement("div"));
    body.className = "text";
    body.textContent = text;
    log.append(made);
    return made;
  };

  // The JSON objects of a stream of server-sent events.
  async function* pieces(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data: {")) yield JSON.parse(line.slice(6));
    }
  }

  const ask = async (text, user, answer) => {
    const said = { model: agent, stream: true, metadata: { session: session || "new" }, messages: [{ role: "user", content: text }] };
    const response = await fetch(`${root}/v1/chat/completions`, {
      method: "POST", signal: reading.signal, body: JSON.stringify(session ? said : { ...said, user }),
      headers: { "Content-Type": "application/json", "X-CSRF-Token": document.querySelector('meta[name="csrf"]').content },
    });
    if (!response.ok) throw new Error((await response.json()).error.message);
    let chat = session;
    for await (const piece of pieces(response)) {
      if (piece.error) throw new Error(piece.error.message);
      chat = piece.metadata?.session ?? chat;
      answer.querySelector(".text").textContent += piece.choices[0]?.delta.content ?? "";
      if (below() < 240) toEnd();
    }
    location.replace(`?session=${encodeURIComponent(chat)}`);
  };

  const say = async () => {
    const text = box.value;
    if (reading || !text.trim()) return;
    const user = form.elements.user?.value ?? form.dataset.user;
    const shown = [article("user", user || "you", text), article("assistant", agent.split("/")[1], "")];
    reading = new AbortController();
    [box.value, send.disabled, stop.hidden, failure.hidden] = ["", true, false, true];
    toEnd();
    try {
      await ask(text, user, shown[1]);
    } catch (error) {
      if (error.name === "AbortError") return location.reload();
      for (const one of shown) one.remove();
      failure.textContent = error.message;
      box.value ||= text;
      [reading, send.disabled, stop.hidden, failure.hidden] = [null, false, true, false];
      box.focus();
    }
  };

  const end = () => reading?.abort();

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    say();
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") end();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    say();
  });
  stop.addEventListener("click", end);
  if (log.lastElementChild) toEnd();
})();
