"use strict";
// All text goes through textContent: a token is never markup. Styles are set by script, which the page's policy allows.
const { sentences, measures } = JSON.parse(document.getElementById("data").textContent);
const list = document.getElementById("list"), order = document.getElementById("order");
const more = document.getElementById("more"), filter = document.getElementById("filter");
const STEP = 50; // sentences drawn at a time
let shown = [], drawn = 0, worst = -1;

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function glow(element, weight) {
  element.style.backgroundColor = weight > 0.01 ? `rgba(var(--glow), ${Math.min(0.85, 0.06 + 0.75 * weight)})` : "";
}

function percent(weight) {
  return `${Math.round(100 * weight)} %`;
}

// What target word j, or source word i, gives to each word of the other side.
const looks = {
  target: (sentence, j) => sentence.weights[j].map((value) => value / 1000),
  source: (sentence, i) => sentence.back
    ? sentence.back[i].map((value) => value / 1000)
    : sentence.weights.map((row) => row[i] / 1000),
};

function side(sentence, name, cells) {
  const row = make("p", "words");
  row.dir = "auto";
  const texts = sentence[name];
  texts.forEach((text) => {
    const word = make("span", "word", text);
    word.tabIndex = 0;
    cells.push(word);
    row.append(word);
  });
  if (name === "source" || sentence.back) { // with one direction, no weight is on the end of the target
    const none = make("span", "word none", "∅");
    none.title = "no word: the end of the sentence";
    cells.push(none);
    row.append(none);
  }
  return row;
}

function draw(sentence) {
  const card = make("article");
  card.id = `line-${sentence.line}`;
  const about = make("div", "about");
  about.append(make("span", "", `line ${sentence.line}`));
  for (const [name, title] of measures)
    if (sentence[name] !== null) about.append(make("span", "", `${title} ${sentence[name].toFixed(3)}`));
  const toggle = make("button", "", "matrix");
  toggle.type = "button";
  toggle.setAttribute("aria-expanded", "false");
  about.append(toggle);
  const cells = { source: [], target: [] };
  const said = make("p", "said");
  said.setAttribute("aria-live", "polite");
  card.append(about, side(sentence, "source", cells.source), side(sentence, "target", cells.target), said);

  const clear = () => {
    for (const cell of [...cells.source, ...cells.target]) {
      glow(cell, 0);
      cell.classList.remove("linked", "asked");
    }
    said.replaceChildren();
  };
  const ask = (name, place) => {
    clear();
    const other = name === "source" ? "target" : "source";
    const weights = looks[name](sentence, place);
    cells[name][place].classList.add("asked");
    cells[other].forEach((cell, at) => glow(cell, weights[at] || 0));
    for (const [i, j] of sentence.links) {
      const pair = { source: i, target: j };
      if (pair[name] === place) cells[other][pair[other]].classList.add("linked");
    }
    const best = weights.map((weight, at) => [weight, at]).sort((a, b) => b[0] - a[0]).slice(0, 4);
    said.append(make("bdi", "", sentence[name][place]), ": ");
    best.filter(([weight]) => weight >= 0.01).forEach(([weight, at], number) => {
      const last = at === sentence[other].length;
      said.append(number ? ", " : "", make("bdi", "", last ? "∅" : sentence[other][at]), ` ${percent(weight)}`);
    });
  };
  for (const name of ["source", "target"])
    cells[name].slice(0, sentence[name].length).forEach((cell, place) => {
      for (const event of ["mouseenter", "focus"]) cell.addEventListener(event, () => ask(name, place));
      for (const event of ["mouseleave", "blur"]) cell.addEventListener(event, clear);
    });
  toggle.addEventListener("click", () => {
    const old = card.querySelector(".matrix");
    toggle.setAttribute("aria-expanded", String(!old));
    if (old) old.remove();
    else card.append(matrix(sentence));
  });
  return card;
}

function matrix(sentence) {
  const frame = make("div", "matrix"), table = make("table"), head = make("tr");
  head.append(make("th"));
  for (const text of [...sentence.source, "∅"]) {
    const cell = make("th");
    cell.title = text; // a long word is cut off
    cell.append(make("span", "", text));
    head.append(cell);
  }
  const top = make("thead"), body = make("tbody");
  top.append(head);
  const links = new Set(sentence.links.map(([i, j]) => `${i}-${j}`));
  sentence.weights.forEach((row, j) => {
    const line = make("tr"), name = make("th");
    name.append(make("bdi", "", sentence.target[j]));
    line.append(name);
    row.forEach((value, i) => {
      const cell = make("td", links.has(`${i}-${j}`) ? "linked" : "", value >= 100 ? String(Math.round(value / 10)) : "");
      glow(cell, value / 1000);
      line.append(cell);
    });
    body.append(line);
  });
  table.append(top, body);
  frame.append(table);
  return frame;
}

function extend(count) {
  for (const end = Math.min(shown.length, drawn + count); drawn < end; drawn++) list.append(draw(shown[drawn]));
  more.hidden = drawn >= shown.length;
  more.textContent = `${shown.length - drawn} more`;
}

// Sentences without a value come last. A higher error rate is worse, and so is a lower score.
function byBadness(name) {
  const sign = measures.find((measure) => measure[0] === name)[2];
  return (a, b) => (a[name] === null) - (b[name] === null) || sign * (b[name] - a[name]) || a.line - b.line;
}

function refresh() {
  const [name, direction] = order.value.split(" ");
  const wanted = filter.value.toLowerCase();
  shown = sentences.filter((sentence) =>
    !wanted || [...sentence.source, ...sentence.target].some((word) => word.toLowerCase().includes(wanted)));
  if (name === "line") shown.sort((a, b) => a.line - b.line);
  else {
    shown.sort(byBadness(name));
    if (direction === "best") shown.reverse();
  }
  worst = -1;
  drawn = 0;
  list.replaceChildren();
  document.getElementById("count").textContent =
    shown.length === sentences.length ? `${sentences.length} sentences` : `${shown.length} of ${sentences.length} sentences`;
  extend(STEP);
}

function jump() {
  const ranked = [...shown].sort(byBadness(measures[0][0]));
  if (!ranked.length) return;
  worst = (worst + 1) % ranked.length;
  const place = shown.indexOf(ranked[worst]);
  if (place >= drawn) extend(place + 1 - drawn);
  for (const card of document.querySelectorAll("article.found")) card.classList.remove("found");
  const card = document.getElementById(`line-${ranked[worst].line}`);
  card.classList.add("found");
  card.scrollIntoView({ block: "center" });
}

for (const [name, title] of measures)
  for (const direction of ["worst", "best"]) {
    const choice = make("option", "", `${title}, ${direction} first`);
    choice.value = `${name} ${direction}`;
    order.append(choice);
  }
order.addEventListener("change", refresh);
filter.addEventListener("input", refresh);
more.addEventListener("click", () => extend(STEP));
const button = document.getElementById("worst");
button.hidden = !measures.length;
button.addEventListener("click", jump);
refresh();
