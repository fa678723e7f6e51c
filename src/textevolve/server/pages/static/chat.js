// A chat: sends a message, and writes the answer as it comes. What people and models say enters by
// textContent alone; what the server has drawn is escaped there.
"use strict";
(() => {
  const form = document.getElementById("say");
  const box = document.getElementById("text");
  const log = document.getElementById("log");
  const [send, stop, again] = ["send", "stop", "again"].map((id) => document.getElementById(id));
  const state = document.getElementById("state");
  const failure = document.getElementById("failure");
  const session = form.elements.session;
  const base = form.action.replace(/\/say$/, "");
  let reading = null; // what ends the request that is under way, as long as an answer is to come

  const tell = (place, said) => {
    place.textContent = said;
    place.hidden = !said && place !== state;
  };

  const post = (path, fields, signal) => {
    const token = form.elements.csrf.value;
    return fetch(base + path, {
      method: "POST", signal, body: new URLSearchParams({ csrf: token, session: session.value, ...fields }),
      headers: { "X-CSRF-Token": token, Accept: "text/event-stream, application/json" },
    });
  };

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

  const follow = () => {
    const room = document.documentElement;
    if (room.scrollHeight - room.clientHeight - room.scrollTop < 240) room.scrollTop = room.scrollHeight;
  };

  // The events of a stream, each with its name and its data.
  async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const fields = Object.fromEntries(
          block.split(/\r?\n/).filter((line) => !line.startsWith(":")).map((line) => line.split(/: ?(.*)/s)));
        if (fields.data) yield [fields.event, JSON.parse(fields.data)];
      }
    }
  }

  const begun = (found) => {
    if (session.value === found.session) return;
    session.value = found.session;
    if (form.elements.user) form.elements.user.readOnly = true;
    history.replaceState(null, "", `?session=${encodeURIComponent(found.session)}`);
  };

  const learned = (found, answer) => {
    const place = answer.dataset.position === String(found.position)
      ? answer : log.querySelector(`[data-position="${Number(found.position)}"]`);
    if (place) place.insertAdjacentHTML("beforeend", found.html);
  };

  const busy = (is) => {
    send.disabled = is;
    again.disabled = is;
    const focused = document.activeElement === stop;
    stop.hidden = !is;
    log.setAttribute("aria-busy", String(is));
    if (!is && focused) box.focus();
  };

  async function turn(fields) {
    const asked = fields.text === undefined ? null : article("user", form.elements.user?.value || form.dataset.user || "you", fields.text);
    const answer = article("assistant", form.dataset.agent, "");
    const body = answer.querySelector(".text");
    const mine = new AbortController();
    let whole = false;
    let known = false;
    const finish = () => {
      whole = true;
      if (reading === mine) reading = null;
      busy(false);
    };
    reading = mine;
    busy(true);
    tell(failure, "");
    tell(state, "recalling");
    again.hidden = true;
    follow();
    const failed = (said) => {
      tell(failure, said);
      tell(state, "");
      answer.remove();
      again.hidden = !known;
      if (!known && asked) {
        asked.remove();
        if (!box.value) box.value = fields.text;
      }
    };
    try {
      const response = await post("/say", fields, mine.signal);
      if (!response.ok) {
        const found = await response.json().catch(() => ({}));
        failed(found.error?.message ?? `The server answered ${response.status}.`);
        return;
      }
      for await (const [name, found] of events(response)) {
        if (name === "begun") {
          begun(found);
          known = true;
        } else if (name === "recalled" || name === "shortened") {
          body.insertAdjacentHTML("beforebegin", found.html);
          tell(state, "writing");
        } else if (name === "piece") {
          body.textContent = found.anew ? found.text : body.textContent + found.text;
        } else if (name === "answer") {
          body.textContent = found.text;
          answer.insertAdjacentHTML("beforeend", found.html);
          answer.dataset.position = found.position;
          if (!found.text.trim()) again.hidden = false;
          tell(state, "answered");
          finish();
        } else if (name === "learned") {
          learned(found, answer);
        } else if (name === "failed" && whole) {
          tell(failure, found.message);
        } else if (name === "failed") {
          failed(found.message);
        }
        follow();
      }
      if (!whole && !failure.textContent) failed("The answer broke off; load the page anew to see what was kept.");
    } catch (error) {
      if (whole) return;
      if (error.name === "AbortError" && body.textContent.trim()) {
        const note = answer.appendChild(document.createElement("p"));
        note.className = "note";
        note.textContent = "Stopped; what was written is kept.";
        tell(state, "stopped");
      } else failed(error.name === "AbortError" ? "Stopped." : "The server cannot be reached.");
    } finally {
      if (!whole) finish();
    }
  }

  const say = () => {
    const text = box.value;
    if (reading || !text.trim()) return;
    box.value = "";
    const user = form.elements.user && !session.value ? { user: form.elements.user.value } : {};
    turn({ text, ...user });
    box.focus();
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
  again.addEventListener("click", () => {
    if (reading) return;
    turn({ again: "yes" });
    box.focus();
  });
  if (log.lastElementChild) document.documentElement.scrollTop = document.documentElement.scrollHeight;
})();
