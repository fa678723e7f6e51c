// The matrix of a report: filters, sorts and draws the rows that stand beside this script as JSON.
// Texts come from models and files: they enter the page by textContent alone, never as markup.
(() => {
  const root = document.currentScript.closest(".matrix");
  const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const { variants, rows } = data;
  const EXPECTED = data.expected, SHORT = 24, BINS = 10, OVERSCAN = 400, MOST_ROWS = 160, CLIPPED = 1200, LINE = 34, FEW = 3;
  const named = new Set();
  for (const row of rows) for (const e of row.entries) for (const name in e?.scores) named.add(name);
  const judges = [...named];
  const state = {
    text: "", failures: false, unscored: false, differences: false, apart: 0.1, below: null, judge: judges[0] ?? "",
    sort: "", falling: false, left: 0, right: Math.min(1, variants.length - 1), diff: false, all: rows.length <= FEW, hidden: new Set(),
  };
  const opened = new Set(); // rows that show everything
  const unfolded = new Set(); // ids of the details that are open in place
  const heights = new Map(); // of the rows that have been drawn, in pixels
  const alive = new Map(); // the elements of the rows around the viewport
  let order = [], offsets = new Float64Array(1), current = -1, waiting = 0;

  // ---- what is read of an entry

  const scoreOf = (entry) => entry?.scores?.[state.judge] ?? null;
  const isFailure = (entry) => Boolean(entry && (entry.failure || entry.passed === false || entry.against));
  const isUnscored = (entry) => !entry || scoreOf(entry) === null;
  const gap = (row) => {
    const [a, b] = [scoreOf(row.entries[state.left]), scoreOf(row.entries[state.right])];
    return a === null || b === null ? null : b - a;
  };

  function differs(row) {
    const found = row.entries.filter(Boolean);
    const scores = found.map(scoreOf).filter((score) => score !== null);
    return new Set(found.map((e) => `${Boolean(e.failure)} ${e.passed}`)).size > 1
      || (scores.length > 1 && Math.max(...scores) - Math.min(...scores) >= Math.max(state.apart, 1e-9) - 1e-9);
  }

  function words(row) {
    row.words ??= [row.id, row.title ?? "", row.input ?? "", row.reference ?? "", ...Object.values(row.columns ?? {}), ...Object.values(row.facts ?? {}), ...row.entries.flatMap(
      (e) => (e ? [e.output, e.failure, ...Object.values(e.reasons ?? {})] : []))].join("\n").toLowerCase();
    return row.words;
  }

  // ---- which rows are shown, and in what order

  function isShown(row) {
    if (state.failures && !row.entries.some(isFailure)) return false;
    if (state.unscored && !row.entries.some(isUnscored)) return false;
    if (state.differences && !differs(row)) return false;
    if (state.below !== null && !row.entries.some((e) => e && scoreOf(e) !== null && scoreOf(e) < state.below)) return false;
    return !state.text || words(row).includes(state.text);
  }

  function keyOf(row) {
    if (state.sort === "gap") return gap(row);
    return state.sort === "" ? null : scoreOf(row.entries[Number(state.sort)]);
  }

  function arrange() {
    const kept = current >= 0 ? order[current] : -1;
    order = [];
    rows.forEach((row, n) => isShown(row) && order.push(n));
    const sign = state.falling ? -1 : 1;
    if (state.sort === "id") {
      const collator = new Intl.Collator(undefined, { numeric: true });
      order.sort((a, b) => sign * collator.compare(rows[a].id, rows[b].id) || a - b);
    } else if (state.sort !== "") {
      const keys = new Map(order.map((n) => [n, keyOf(rows[n])]));
      const last = (n) => Number(keys.get(n) === null); // what has no score comes last either way
      order.sort((a, b) => last(a) - last(b) || sign * (keys.get(a) - keys.get(b)) || a - b);
    } else if (state.falling) order.reverse();
    current = order.indexOf(kept);
    clear();
    heading();
    draw();
  }

  function text(said, name, whole) {
    const made = el("div", name, whole || said.length <= CLIPPED ? said : said.slice(0, CLIPPED) + "…");
    made.dir = "auto";
    return made;
  }

  // ---- a row

  function opener(id) {
    if (!id || !document.getElementById(id)) return null; // the page may still be read
    const open = unfolded.has(id);
    const made = button((open ? "Hide" : "Show") + " details", "link", () => {
      if (!unfolded.delete(id)) unfolded.add(id);
      redraw(Number(made.closest(".row").dataset.row));
    });
    made.setAttribute("aria-expanded", open);
    return made;
  }

  function details(id, title) {
    const place = unfolded.has(id) ? document.getElementById(id) : null;
    if (!place) return null;
    place.home ??= place.parentNode; // where it lies while it is not open
    return Object.assign(el("div", "place", el("h3", "", title), place), { lent: place });
  }

  function giveBack(element) {
    for (const { lent } of element.querySelectorAll(".place")) lent.home.append(lent);
  }

  function cell(row, n, whole) {
    const entry = row.entries[n];
    if (!entry) return el("div", "cell none dim", "–");
    const made = el("div", "cell", el("div", "variant", variants[n]));
    const line = el("div", "verdict");
    if (entry.passed !== undefined) line.append(el("b", entry.passed ? "pass" : "fail", entry.passed ? "pass" : "fail"));
    for (const [name, score] of Object.entries(entry.scores ?? {})) {
      line.append(el("span", "score", el("span", score === null ? "dim" : shade(score), figure(score)),
        judges.length > 1 ? el("span", "judge", name) : ""));
    }
    if (entry.against) line.append(el("b", "fail", entry.output + " ≠ " + entry.against));
    made.append(line);
    if (entry.failure) made.append(text(entry.failure, "failure", whole));
    const { "tool calls": calls, ...others } = entry.facts ?? {};
    if (calls) made.append(text(calls, "calls", whole));
    if (entry.output && !entry.against) made.append(output(row, n, whole));
    for (const [name, said] of Object.entries(entry.reasons ?? {})) {
      const reason = text(said, "reason", whole);
      reason.prepend(el("b", "", name + " "));
      made.append(reason);
    }
    made.append(...[whole ? facts(others) : null, opener(entry.details)].filter(Boolean));
    return made;
  }

  function output(row, n, whole) {
    const before = row.entries[state.left]?.output;
    const after = row.entries[n].output;
    if (!state.diff || n !== state.right || n === state.left || before === undefined) return text(after, "output", whole);
    const clip = (said) => (whole ? said : said.slice(0, CLIPPED));
    const pieces = compareWords(clip(before), clip(after));
    return el("div", "output", ...pieces.map(([kind, said]) => (kind ? el(kind, "", said) : said)));
  }

  const chosenVariants = () => variants.map((_, n) => n).filter((n) => !state.hidden.has("variant " + n));

  function columnPairs(row) {
    return Object.entries(row.columns).filter(([name, value]) => value && !state.hidden.has(name));
  }

  // What the row's input was made of: a line of values while it is closed, else each with its name.
  function columns(row, whole) {
    const pairs = columnPairs(row);
    if (!whole) return text(pairs.map(([, value]) => value).join(" · "), "input", false);
    const input = !row.input || pairs.some(([, value]) => value === row.input) ? [] : [["input", row.input]];
    return el("dl", "columns", ...[...pairs, ...input].map(([name, value]) => el("div", "", el("dt", "", name), el("dd", "", value))));
  }

  function build(n) {
    const row = rows[n], whole = state.all || opened.has(n);
    const head = button(row.title ?? row.id, "id", () => toggle(n));
    head.setAttribute("aria-expanded", whole);
    const first = el("div", "cell asked", head, row.columns ? columns(row, whole) : text(row.input, "input", whole));
    if (row.reference && !state.hidden.has(EXPECTED)) first.append(el("div", "reference" + (row.reference.length <= SHORT ? " short" : ""), el("b", "", EXPECTED + " "), text(row.reference, "", whole)));
    first.append(...[facts(row.facts), opener(row.details)].filter(Boolean));
    const made = el("article", "row" + (whole ? " whole" : ""), first, ...chosenVariants().map((v) => cell(row, v, whole)),
      details(row.details, "Details"), ...row.entries.map((e, v) => details(e?.details, variants[v])));
    made.dataset.row = n;
    made.addEventListener("pointerdown", () => mark(order.indexOf(n)));
    if (order[current] === n) made.setAttribute("aria-current", "true");
    return made;
  }

  // ---- only the rows around the viewport are in the page; the room of the others is kept

  function measure() {
    const known = [...heights.values()];
    const usual = known.length ? known.reduce((a, b) => a + b) / known.length : LINE;
    offsets = new Float64Array(order.length + 1);
    order.forEach((n, p) => (offsets[p + 1] = offsets[p] + (heights.get(n) ?? usual)));
  }

  function positionAt(y) {
    let low = 0, high = order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (offsets[middle + 1] <= y) low = middle + 1; else high = middle;
    }
    return low;
  }

  function remove(n) {
    giveBack(alive.get(n));
    alive.get(n).remove();
    alive.delete(n);
  }

  function clear() {
    for (const n of [...alive.keys()]) remove(n);
  }

  function draw(anchor = null) {
    measure();
    const top = -list.getBoundingClientRect().top;
    const first = Math.min(positionAt(Math.max(0, top - OVERSCAN)), Math.max(0, order.length - 1));
    const past = Math.min(positionAt(top + innerHeight + OVERSCAN) + 1, first + MOST_ROWS, order.length);
    anchor ??= [...alive].find(([, one]) => one.getBoundingClientRect().bottom > 0)?.[0];
    const before = alive.get(anchor)?.getBoundingClientRect().top;
    const wanted = new Set(order.slice(first, past));
    for (const n of [...alive.keys()]) if (!wanted.has(n)) remove(n);
    let next = above.nextSibling;
    for (const n of wanted) {
      if (!alive.has(n)) alive.set(n, build(n));
      if (alive.get(n) === next) next = next.nextSibling;
      else list.insertBefore(alive.get(n), next);
    }
    keepRoom(first, past); // before anything is measured: a page that is shorter would be scrolled
    for (const [n, one] of alive) heights.set(n, one.getBoundingClientRect().height);
    measure();
    keepRoom(first, past);
    const moved = alive.has(anchor) && before !== undefined ? alive.get(anchor).getBoundingClientRect().top - before : 0;
    if (Math.abs(moved) > 1 && top > 0) scrollBy(0, moved);
  }

  function keepRoom(first, past) {
    above.style.height = offsets[first] + "px";
    below.style.height = offsets[order.length] - offsets[past] + "px";
  }

  function drawSoon() {
    waiting ||= requestAnimationFrame(() => { waiting = 0; draw(); });
  }

  function redraw(n) {
    if (!alive.has(n)) return;
    giveBack(alive.get(n));
    const made = build(n);
    alive.get(n).replaceWith(made);
    alive.set(n, made);
    draw(n);
  }

  function toggle(n) {
    if (!opened.delete(n)) opened.add(n);
    redraw(n);
  }

  function mark(position) {
    alive.get(order[current])?.removeAttribute("aria-current");
    current = position;
    alive.get(order[current])?.setAttribute("aria-current", "true");
  }

  function go(position) {
    if (!order.length) return;
    mark(Math.min(order.length - 1, Math.max(0, position)));
    if (!alive.has(order[current])) {
      scrollTo(0, scrollY + list.getBoundingClientRect().top + offsets[current] - head.offsetHeight);
      draw();
    }
    alive.get(order[current])?.scrollIntoView({ block: "nearest" });
    draw(order[current]);
  }

  // ---- the head: what can be chosen, and what the rows shown come to for each variant

  function heading() {
    count.textContent = order.length === rows.length ? `${rows.length.toLocaleString("en")} rows`
      : `${order.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
    empty.hidden = order.length > 0;
    const room = Math.max(1, ...variants.map((_, n) => Math.max(...histogram(n))));
    head.replaceChildren(el("div", "cell", count), ...chosenVariants().map((n) => {
      const name = variants[n];
      const found = order.map((row) => rows[row].entries[n]).filter(Boolean);
      const scores = found.map(scoreOf).filter((score) => score !== null);
      const judged = found.filter((e) => e.passed !== undefined), failed = found.filter((e) => e.failure).length;
      const mean = scores.length ? scores.reduce((a, b) => a + b, 0) / scores.length : null;
      const said = [`mean ${figure(mean)}`];
      if (judged.length) said.push(`${Math.round((100 * judged.filter((e) => e.passed).length) / judged.length)} % pass`);
      if (failed) said.push(`${failed} failed`);
      const sorted = state.sort === String(n) ? (state.falling ? " ↓" : " ↑") : "";
      return el("div", "cell", button(name + sorted, "name", () => sortBy(n)), el("div", "said", said.join(" · ")), bars(histogram(n), room, mean));
    }));
  }

  function histogram(n) {
    const bins = new Array(BINS).fill(0);
    for (const row of order) {
      const score = scoreOf(rows[row].entries[n]);
      if (score !== null) bins[Math.min(BINS - 1, Math.max(0, Math.floor(score * BINS)))]++;
    }
    return bins;
  }

  function sortBy(n) {
    const same = state.sort === String(n);
    Object.assign(state, same && state.falling ? { sort: "", falling: false } : { sort: String(n), falling: same });
    settings();
  }

  function settings() {
    for (const [name, one] of Object.entries(pressed)) one.setAttribute("aria-pressed", state[name]);
    sorting.querySelector("select").value = state.sort;
    falling.textContent = state.falling ? "↓" : "↑";
    falling.setAttribute("aria-label", state.falling ? "highest first" : "lowest first");
    root.style.setProperty("--variants", chosenVariants().length);
    heights.clear();
    arrange();
  }

  // A list of boxes: which of the row's columns, and which variants, are shown.
  function chooser() {
    const names = new Set();
    for (const row of rows) for (const name in row.columns) names.add(name);
    const boxes = [...[...names].map((name) => [name, name]),
      ...(rows.some((row) => row.reference) ? [[EXPECTED, EXPECTED]] : []),
      ...(variants.length > 1 ? variants.map((name, n) => ["variant " + n, name]) : [])];
    if (boxes.length < 2) return null;
    return el("details", "columns-shown", el("summary", "", "Columns"), el("div", "boxes", ...boxes.map(([key, name]) => {
      const box = Object.assign(el("input"), { type: "checkbox", checked: true });
      box.addEventListener("change", () => {
        if (box.checked) state.hidden.delete(key); else state.hidden.add(key);
        settings();
      });
      return el("label", "", box, name);
    })));
  }

  const set = (changes) => () => { Object.assign(state, changes()); settings(); };
  const pressed = {
    failures: button("Failed", "", set(() => ({ failures: !state.failures }))),
    unscored: button("No score", "", set(() => ({ unscored: !state.unscored }))),
    differences: button("Differs", "", set(() => ({ differences: !state.differences }))),
    diff: button("Word diff", "", set(() => ({ diff: !state.diff }))),
    all: button("Expand all", "", set(() => ({ all: !state.all }))),
  };
  const search = Object.assign(el("input", "search"), { type: "search", placeholder: "Search input, outputs, reasons", spellcheck: false });
  search.setAttribute("aria-label", "Search");
  search.addEventListener("input", () => { state.text = search.value.toLowerCase(); settings(); });
  const names = variants.map((name, n) => [String(n), name]);
  const pair = variants.length > 1;
  const sorting = choice("Sort", [["", "as in the data"], ["id", "row"], ...names.map(([n, name]) => [n, "score of " + name]),
    ...(pair ? [["gap", "difference of the pair"]] : [])], "", (value) => set(() => ({ sort: value }))());
  const falling = button("↑", "", set(() => ({ falling: !state.falling })));
  const help = el("dialog", "help", el("h3", "", "Keys"), el("dl", "", ...[
    ["j  ↓", "next row"], ["k  ↑", "row before"], ["o  Enter", "open or close the row"], ["e", "open or close all rows"],
    ["/", "search"], ["f", "only failed rows"], ["n", "only rows without a score"], ["d", "only rows that differ"], ["x", "word diff of the pair"], ["?", "these keys"],
  ].map(([key, does]) => el("div", "", el("dt", "", key), el("dd", "", does)))), button("Close", "", () => help.close()));
  const count = el("span", "count");
  count.setAttribute("role", "status");
  // What is chosen less often is folded on a narrow screen.
  const more = el("details", "more", el("summary", "", "More"), el("div", "bar-of-choices",
    ...(pair ? [number("Differs by at least", state.apart, (value) => set(() => ({ apart: value ?? 0 }))())] : []),
    number("Score below", "", (value) => set(() => ({ below: value }))()),
    ...(judges.length > 1 ? [choice("Score", judges.map((name) => [name, name]), state.judge, (value) => set(() => ({ judge: value }))())] : []),
    ...(pair ? [el("span", "group", choice("Pair", names, String(state.left), (value) => set(() => ({ left: Number(value) }))()),
      choice("and", names, String(state.right), (value) => set(() => ({ right: Number(value) }))()), pressed.diff)] : []),
    ...[chooser()].filter(Boolean), button("?", "keys", () => help.showModal())));
  more.open = !matchMedia("(max-width: 40rem)").matches;
  const bar = el("div", "bar-of-choices", search, pressed.failures, pressed.unscored, ...(pair ? [pressed.differences] : []),
    el("span", "group", sorting, falling), pressed.all, more);
  const head = el("div", "row head"), above = el("div", "room"), below = el("div", "room");
  const list = el("div", "rows-of-data", above, below);
  const empty = el("p", "note", "No row is like that.");
  const live = el("div", "live", bar, head, list, empty, help);

  const KEYS = {
    j: () => go(current + 1), ArrowDown: () => go(current + 1), k: () => go(current - 1), ArrowUp: () => go(current - 1),
    o: () => current >= 0 && toggle(order[current]), Enter: () => current >= 0 && toggle(order[current]),
    "/": () => search.focus(), f: () => pressed.failures.click(), n: () => pressed.unscored.click(), "?": () => help.showModal(), e: () => pressed.all.click(),
    d: () => pair && pressed.differences.click(), x: () => pair && pressed.diff.click(),
  };
  document.addEventListener("keydown", (event) => {
    const at = document.activeElement, mine = at?.closest(".matrix") ?? document.querySelector(".matrix");
    if (mine !== root || help.open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && at === search) return search.blur();
    if (at?.matches("input, select, textarea") || (event.key === "Enter" && at?.matches("button, a, summary"))) return;
    const act = KEYS[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  root.classList.add("on");
  root.classList.toggle("many", variants.length > 4);
  root.querySelector(".plain").before(live);
  settings();
  const follow = () => { // #row-ID leads to a row, opened
    let wanted = "";
    try { wanted = decodeURIComponent(location.hash); } catch { /* no address of ours */ }
    const n = rows.findIndex((row) => "#row-" + row.id === wanted);
    if (n < 0) return;
    opened.add(n);
    if (!order.includes(n)) Object.assign(state, { text: "", failures: false, unscored: false, differences: false, below: null });
    settings();
    go(order.indexOf(n));
  };
  addEventListener("hashchange", follow);
  addEventListener("scroll", drawSoon, { passive: true });
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) heights.clear();
    width = innerWidth;
    drawSoon();
  });
  document.addEventListener("DOMContentLoaded", () => { clear(); draw(); follow(); }); // by now the details are there
})();
