// What all pages share: requests that change something carry the token of the session, and what goes
// wrong with one is said above the content. Texts enter by textContent alone.
"use strict";
(() => {
  const trouble = (said) => {
    const place = document.getElementById("trouble");
    if (!place) return;
    place.textContent = said;
    place.hidden = !said;
    if (said) place.scrollIntoView({ block: "nearest" });
  };

  const read = (text) => {
    try {
      const found = JSON.parse(text);
      return found.error?.message ?? found.detail?.message ?? "";
    } catch {
      return new DOMParser().parseFromString(text, "text/html").querySelector(".error:not([hidden])")?.textContent ?? "";
    }
  };

  document.addEventListener("htmx:configRequest", (event) => {
    const meta = document.querySelector('meta[name="csrf"]');
    event.detail.headers["X-CSRF-Token"] = meta ? meta.content : "";
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    const { successful, xhr, elt } = event.detail;
    if (successful) trouble("");
    else if (xhr && xhr.status) trouble(read(xhr.responseText) || `The server answered ${xhr.status}.`);
    else if (!elt.matches("[data-poll]")) trouble("The server cannot be reached.");
  });

  // A button that calls the API: data-call="POST /v1/...", data-body: what is sent (an empty object
  // unless it says so), data-sure: what is asked before it,
  // data-then: the address to go to; else the page is loaded anew.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-call]");
    if (!button || (button.dataset.sure && !confirm(button.dataset.sure))) return;
    const [method, address] = button.dataset.call.split(" ");
    const token = document.querySelector('meta[name="csrf"]')?.content ?? "";
    button.disabled = true;
    try {
      const response = await fetch(address, {
        method, headers: { "Content-Type": "application/json", "X-CSRF-Token": token },
        body: method === "DELETE" ? undefined : (button.dataset.body ?? "{}"),
      });
      if (!response.ok) return trouble(read(await response.text()) || `The server answered ${response.status}.`);
      if (button.dataset.then) location.assign(button.dataset.then);
      else location.reload();
    } catch {
      trouble("The server cannot be reached.");
    } finally {
      button.disabled = false;
    }
  });

  // On a narrow screen a row is a card, in which each cell that has something has the name of its
  // column.
  const label = () => {
    for (const table of document.querySelectorAll(".table-wrap > table")) {
      const names = [...(table.tHead?.rows[0]?.cells ?? [])].map((cell) => cell.textContent);
      for (const body of table.tBodies) for (const row of body.rows) [...row.cells].forEach((cell, n) => {
        const said = cell.textContent.trim();
        cell.toggleAttribute("data-empty", said === "–" || (!said && !cell.childElementCount));
        if (cell.tagName === "TD" && names[n]) cell.dataset.name = names[n];
      });
    }
  };
  document.addEventListener("DOMContentLoaded", label);
  document.addEventListener("htmx:afterSwap", label);
  document.addEventListener("htmx:oobAfterSwap", label);

  // Two runs that are ticked can be compared.
  const count = () => {
    for (const button of document.querySelectorAll(".when-two")) {
      button.form.classList.toggle("two", button.form.querySelectorAll(":checked").length === 2);
    }
  };
  document.addEventListener("DOMContentLoaded", count);
  document.addEventListener("change", count);

  // A choice in a form that is sent by itself.
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-send]")) event.target.form.requestSubmit();
  });
})();
