// The page of `holdfast demo`. It asks for /state again and again and shows it; buttons are sent to /do. Nothing is reckoned
// here: what is shown was read from the database.

const byId = (id) => document.getElementById(id);

// make builds an element; children are elements or texts, never markup.
function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("data")) element.dataset[key.slice(4).toLowerCase()] = value;
    else element[key] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// sync shows a list: what is unchanged stays as it is, with its focus, and what is new is marked.
function sync(parent, items, key, build, first) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let before = null;
  for (const item of items) {
    const name = String(key(item));
    const text = JSON.stringify(item);
    let element = known.get(name);
    known.delete(name);
    if (!element || element.shown !== text) {
      const fresh = build(item);
      fresh.dataset.key = name;
      fresh.shown = text;
      if (!first) fresh.classList.add("new");
      if (element) {
        const focused = [...element.querySelectorAll("button")].indexOf(document.activeElement);
        element.replaceWith(fresh);
        fresh.querySelectorAll("button")[focused]?.focus();
      }
      element = fresh;
    }
    const place = before ? before.nextSibling : parent.firstChild;
    if (place !== element) parent.insertBefore(element, place);
    before = element;
  }
  for (const gone of known.values()) gone.remove();
}

const clock = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat("en", { day: "numeric", month: "short" });
const time = (text) => clock.format(new Date(text));
const moment = (text) => `${day.format(new Date(text))}, ${time(text)}`;

const cell = (text, name = "") => make("td", { className: name }, text === "" ? "–" : String(text));
const number = (value) => cell(value, "number");

function grant(g) {
  const bar = make("div", { className: "bar" });
  for (const part of ["used", "reserved", "voided"]) {
    const piece = make("i", { className: part });
    piece.style.flexBasis = `${g.granted ? (100 * g[part]) / g.granted : 0}%`;
    bar.append(piece);
  }
  const ends = g.ends ? `, ${g.ended ? "ended" : "until"} ${moment(g.ends)}` : "";
  const name = make("th", { scope: "row" }, `${g.source} `, make("small", {}, g.unit + ends));
  return make("tr", { className: g.ended || !g.open ? "closed" : "" }, name,
    ...[g.granted, g.available, g.reserved, g.used, g.voided].map(number), make("td", {}, bar));
}

function reservation(r) {
  const state = make("span", { className: "state", dataState: r.state }, r.state);
  return make("tr", {}, cell(time(r.at)), cell(r.feature), make("td", {}, state, r.cause ? ` ${r.cause}` : ""),
    cell(`${r.reserved} ${r.unit}`, "number"), number(r.used), number(r.attempts));
}

const entry = (e) => make("tr", {}, number(e.no), cell(e.kind), cell(e.moved, "wide"), cell(e.unit ? `${e.available} ${e.unit}` : "", "number"));
const event = (e) => make("tr", {}, number(e.position), cell(e.kind, "wide"));

let texts = new Map();

function message(m) {
  const bubble = make("div", { className: "bubble" });
  if (m.reply_to && texts.has(m.reply_to)) bubble.append(make("span", { className: "reply" }, texts.get(m.reply_to)));
  if (m.picture) bubble.append(make("img", { src: m.picture, alt: m.text || "A picture from the bot" }));
  bubble.append(m.event || m.invoice || m.text);
  const keys = make("div", { className: "keys" });
  for (const row of m.buttons) {
    for (const button of row) {
      const press = () => act(button.pays ? { do: "pay", message: m.id } : { do: "tap", message: m.id, data: button.data });
      keys.append(make("button", { type: "button", onclick: press, disabled: !button.pays && !button.data }, button.text));
    }
  }
  const who = make("span", { className: "hidden" }, m.event ? "" : m.mine ? "Ann: " : "Bot: ");
  const item = make("li", { className: m.event ? "event" : m.mine ? "mine" : "" }, who, bubble);
  if (keys.childElementCount) item.append(keys);
  return item;
}

let first = true;
let atEnd = true; // of the chat, where it stays unless somebody scrolls away

byId("messages").addEventListener("scroll", ({ target: m }) => {
  atEnd = m.scrollHeight - m.scrollTop - m.clientHeight < 60;
});

function show(state) {
  const p = state.process;
  byId("process").dataset.state = p.state;
  byId("process").textContent = p.state === "works" ? `process ${p.pid} works` : p.state === "killed" ? "killed, starts again" : "starts";
  byId("provider").textContent = state.provider.asked ? `asked ${state.provider.asked}×, worked ${state.provider.worked}×` : "not asked yet";
  byId("clock").textContent = moment(state.now);
  byId("clock").dateTime = state.now;
  byId("action").textContent = state.action ? "bot is working …" : "";

  const messages = byId("messages");
  texts = new Map(state.messages.map((m) => [m.id, m.text]));
  sync(messages, state.messages, (m) => m.id, message, true);
  if (atEnd) messages.scrollTop = messages.scrollHeight;

  const a = state.account;
  const balances = a.balances.flatMap((b) => [", ", make("b", {}, String(b.available)), ` ${b.unit} available`, b.reserved ? `, ${b.reserved} reserved` : ""]);
  byId("account").replaceChildren("Ann is on plan ", make("b", {}, a.plan), `, active ${a.active} of ${a.max_active}`, ...balances);

  sync(byId("grants"), state.grants, (g) => g.id, grant, first);
  sync(byId("reservations"), state.reservations, (r) => r.id, reservation, first);
  sync(byId("entries"), state.entries, (e) => e.no, entry, first);
  sync(byId("events"), state.events, (e) => e.position, event, first);
  document.querySelector('[data-do="refund"]').disabled = !state.refundable || busy;
  first = false;
}

let busy = false;

// act sends what was pressed, and shows what is said about it.
async function act(what) {
  try {
    const answer = await fetch("do", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(what) });
    const { said } = await answer.json();
    if (said) byId("said").textContent = said;
  } catch {
    ended();
  }
}

function send(text) {
  atEnd = true;
  return act({ do: "send", text });
}

for (const button of document.querySelectorAll("[data-send]")) button.addEventListener("click", () => send(button.dataset.send));

const fates = [...document.querySelectorAll("[data-do]")];
for (const button of fates) {
  button.addEventListener("click", async () => {
    if (busy) return; // not disabled meanwhile, so that the focus stays where it is
    busy = true;
    byId("fate").ariaBusy = "true";
    byId("said").textContent = "…";
    const text = byId("words").value;
    if (button.dataset.do === "twice") byId("words").value = "";
    await act({ do: button.dataset.do, text });
    byId("fate").ariaBusy = "false";
    busy = false;
  });
}

byId("write").addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  const words = byId("words");
  if (words.value.trim()) send(words.value);
  words.value = "";
});

let over = false;

function ended() {
  over = true;
  byId("said").textContent = "The demo has ended. Start it again with: holdfast demo";
}

async function look() {
  while (!over) {
    try {
      const answer = await fetch("state");
      if (answer.ok) show(await answer.json());
    } catch {
      ended();
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, document.hidden ? 2000 : 300));
  }
}

look();
