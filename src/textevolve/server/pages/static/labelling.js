// Labelling by keyboard: a key presses what has it in data-keys. Each form is sent once.
"use strict";
(() => {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    const at = event.target;
    if (at.matches("textarea, input")) {
      if (event.key === "Escape") at.blur();
      return;
    }
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const field = document.querySelector(`[data-focus="${CSS.escape(key)}"]`);
    const choice = document.querySelector(`[data-keys~="${CSS.escape(key)}"]`);
    if (!field && !choice) return;
    event.preventDefault();
    if (field) field.focus();
    else choice.click();
  });

  document.addEventListener("submit", (event) => {
    if (event.target.dataset.sent) return event.preventDefault();
    event.target.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.forms) delete form.dataset.sent;
  });
})();
