// Labelling by keyboard: a key presses what has it in data-keys; digits answer the current question
// where there are several. Each form is sent once.
"use strict";
(() => {
  const questions = [...document.querySelectorAll("fieldset.question")];
  const current = () => questions.find((one) => !one.querySelector(":checked"));
  const mark = () => questions.forEach((one) => one.classList.toggle("current", one === current()));
  let again = null;

  const choose = (key) => {
    const question = current() ?? again;
    const radio = question?.querySelectorAll("input")[Number(key) - 1];
    if (!radio) return false;
    radio.checked = true;
    again = question;
    mark();
    return true;
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    const at = event.target;
    if (at.matches("textarea, input:not([type=radio])")) {
      if (event.key === "Escape") at.blur();
      return;
    }
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const field = document.querySelector(`[data-focus="${CSS.escape(key)}"]`);
    if (field) {
      event.preventDefault();
      field.focus();
      return;
    }
    // Enter and the arrows are the business of what has the focus.
    if (key === "Enter" && at.closest("a, button, summary")) return;
    if (key.startsWith("Arrow") && at.matches("input[type=radio]")) return;
    if (/^[1-9]$/.test(key) && questions.length && choose(key)) {
      event.preventDefault();
      return;
    }
    const found = document.querySelector(`[data-keys~="${CSS.escape(key)}"]`);
    if (!found) return;
    event.preventDefault();
    found.click();
  });

  // A judge is measured against the labels by a study, whose page is opened.
  const measure = document.getElementById("measure-judge");
  const begin = async () => {
    const token = document.querySelector('meta[name="csrf"]')?.content ?? "";
    const judge = measure.elements.judge.value.split(/[\s,]+/).filter(Boolean);
    const trouble = document.getElementById("trouble");
    trouble.hidden = true;
    try {
      const response = await fetch("/v1/studies", {
        method: "POST", headers: { "Content-Type": "application/json", "X-CSRF-Token": token },
        body: JSON.stringify({ kind: "agreement", items: [measure.dataset.items], judge }),
      });
      const found = await response.json();
      if (response.ok) return location.assign(`/runs/${found.id}`);
      trouble.textContent = found.error?.message ?? `The server answered ${response.status}.`;
    } catch {
      trouble.textContent = "The server cannot be reached.";
    }
    trouble.hidden = false;
    delete measure.dataset.sent;
  };

  document.addEventListener("change", mark);
  mark();

  document.addEventListener("submit", (event) => {
    if (event.target.dataset.sent) return event.preventDefault();
    event.target.dataset.sent = "yes";
    if (event.target === measure) {
      event.preventDefault();
      begin();
    }
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.forms) delete form.dataset.sent;
  });
})();
