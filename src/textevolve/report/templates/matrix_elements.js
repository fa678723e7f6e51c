"use strict";
// What the page of a matrix is made of, whatever stands in it: elements, the words in which two texts
// differ, a histogram. Functions alone, for a page with several matrices reads this several times.

function figure(value, digits = 2) {
  return value === null || value === undefined ? "–" : value.toFixed(digits);
}

function shade(value) {
  return "s s" + Math.round(Math.min(1, Math.max(0, value)) * 10);
}

function el(tag, name, ...inside) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...inside.filter((one) => one !== null && one !== undefined && one !== ""));
  return made;
}

function button(text, name, act) {
  const made = el("button", name, text);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

function choice(label, options, value, act) {
  const made = el("select", "", ...options.map(([key, text]) => Object.assign(el("option", "", text), { value: key })));
  made.value = value;
  made.addEventListener("change", () => act(made.value));
  made.setAttribute("aria-label", label);
  return el("label", "", el("span", "", label), made);
}

function number(label, value, act) {
  const made = Object.assign(el("input"), { type: "number", min: 0, max: 1, step: 0.05, value });
  made.addEventListener("input", () => act(made.value === "" ? null : Number(made.value)));
  return el("label", "", el("span", "", label), made);
}

function facts(found) {
  const items = Object.entries(found ?? {});
  return items.length ? el("dl", "small", ...items.map(([name, said]) => el("div", "", el("dt", "", name), el("dd", "", said)))) : null;
}

// ---- the words of two outputs that differ: what begins and ends alike is cut off, then the
// longest common subsequence; beyond so many words the rest is one difference.

function compareWords(before, after) {
  const MOST_WORDS = 1500;
  const [a, b] = [before, after].map((said) => said.match(/\s+|[^\s]+/g) ?? []);
  let start = 0, end = 0;
  while (start < Math.min(a.length, b.length) && a[start] === b[start]) start++;
  while (end < Math.min(a.length, b.length) - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const [x, y] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  const middle = x.length > MOST_WORDS || y.length > MOST_WORDS
    ? [["del", x.join("")], ["ins", y.join("")]] : commonWords(x, y);
  return [["", a.slice(0, start).join("")], ...middle, ["", a.slice(a.length - end).join("")]].filter(([, said]) => said);
}

function commonWords(x, y) {
  const width = y.length + 1, longest = new Uint16Array((x.length + 1) * width);
  for (let i = x.length - 1; i >= 0; i--) {
    for (let j = y.length - 1; j >= 0; j--) {
      longest[i * width + j] = x[i] === y[j] ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const found = [];
  const add = (kind, said) => (found.at(-1)?.[0] === kind ? (found.at(-1)[1] += said) : found.push([kind, said]));
  let i = 0, j = 0;
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) { add("", x[i++]); j++; }
    else if (j >= y.length || (i < x.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) add("del", x[i++]);
    else add("ins", y[j++]);
  }
  return found;
}

// ---- the histogram of scores from 0 to 1, with a line at their mean; `most` fills its height

function bars(bins, most, mean) {
  const width = 100 / bins.length;
  const svg = (tag, given) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(given)) made.setAttribute(name, value);
    return made;
  };
  const picture = svg("svg", { viewBox: "0 0 100 28", preserveAspectRatio: "none", width: "100%", height: 28, role: "img",
    "aria-label": "Scores in tenths: " + bins.join(", ") });
  bins.forEach((size, n) => {
    const height = size ? Math.max(1, (size / most) * 26) : 0;
    const bar = svg("rect", { class: "bar", x: n * width + 0.6, width: width - 1.2, y: 27 - height, height });
    const hint = svg("title", {});
    hint.textContent = `${figure(n / bins.length, 1)} to ${figure((n + 1) / bins.length, 1)}: ${size}`;
    bar.append(hint);
    picture.append(bar);
  });
  picture.append(svg("line", { class: "axis", x1: 0, x2: 100, y1: 27.5, y2: 27.5 }));
  if (mean !== null) picture.append(svg("line", { class: "mean", x1: mean * 100, x2: mean * 100, y1: 0, y2: 28 }));
  return picture;
}
