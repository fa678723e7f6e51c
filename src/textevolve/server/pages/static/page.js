// What all pages share: requests that change something carry the token of the session.
"use strict";
document.addEventListener("htmx:configRequest", (event) => {
  const meta = document.querySelector('meta[name="csrf"]');
  event.detail.headers["X-CSRF-Token"] = meta ? meta.content : "";
});
