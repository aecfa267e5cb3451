// Which screen is open, who asks, and the keys that work everywhere.

import { authorize, basic, events, get, isAuthorized, session } from "./api.js";
import { ask, field, h, note, put, select } from "./dom.js";
import { clock } from "./format.js";
import { access } from "./access.js";
import { brokers } from "./brokers.js";
import { chaos } from "./chaos.js";
import { groups } from "./groups.js";
import { overview } from "./overview.js";
import { queues } from "./queues.js";
import { topic } from "./topic.js";
import { topics } from "./topics.js";
import { transactions } from "./transactions.js";
import { why } from "./why.js";

const SCREENS = [
  ["", "Overview", overview],
  ["topics", "Topics", (root, parts, signal) => (parts.length ? topic : topics)(root, parts, signal)],
  ["groups", "Groups", groups],
  ["queues", "Queues", queues],
  ["transactions", "Transactions", transactions],
  ["brokers", "Brokers", brokers],
  ["access", "Access", access],
  ["why", "History", why],
  ["chaos", "Chaos", chaos],
];

const KEYS = [
  ["/", "search on this screen"],
  ["↑ ↓", "move in a list; Page Up and Down, Home and End too"],
  ["Enter", "open what is marked"],
  ["1 – 9", "go to a screen"],
  ["Esc", "leave a dialog or the search"],
  ["?", "this help"],
];

const THEME = "raftlog.theme";
const main = document.getElementById("main");
let open = new AbortController();
let asking = false;

function parts() {
  return location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map((each) => {
    try {
      return decodeURIComponent(each);
    } catch {
      return each;
    }
  });
}

function show() {
  open.abort();
  open = new AbortController();
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  const [name = "", ...rest] = parts();
  const found = SCREENS.find(([each]) => each === name);
  const root = h("div", { class: `screen screen-${found ? found[0] || "overview" : "none"}` });
  put(main, root);
  for (const each of document.querySelectorAll("#nav a")) {
    if (each.dataset.screen === name) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  document.title = `${[found ? found[1] : "raftlog", ...rest].join(" · ")} – raftlog`;
  if (!found) put(root, h("h1", {}, "There is no such screen"), h("p", {}, h("a", { href: "#/" }, "Go to the overview")));
  else found[2](root, rest, open.signal);
}

function frame() {
  const shown = SCREENS.filter(([name]) => name !== "chaos" || session.me.faults_enabled || session.me.dev_enabled);
  put(document.getElementById("nav"), shown.map(([name, title]) => h("a", { href: `#/${name}`, "data-screen": name }, title)));
  const who = session.me.changes ? session.me.name : `${session.me.name} (may only read)`;
  put(document.getElementById("who"), h("span", { title: `version ${session.me.version}` }, `node ${session.me.node_id} · ${who} `),
    isAuthorized() && h("button", { type: "button", class: "plain", onclick: leave }, "Sign out"),
    h("button", { type: "button", class: "square", "aria-label": "Theme", title: "Theme", onclick: otherTheme }, "◐"),
    h("button", { type: "button", class: "square", "aria-label": "Keys", onclick: help }, "?"));
}

/** Follow the system, or be light or dark; kept until the tab closes. */
function otherTheme() {
  const order = ["", "light", "dark"];
  const next = order[(order.indexOf(sessionStorage.getItem(THEME) ?? "") + 1) % order.length];
  if (next) sessionStorage.setItem(THEME, next);
  else sessionStorage.removeItem(THEME);
  useTheme();
  note(next ? `The theme is ${next}.` : "The theme follows the system.");
}

function useTheme() {
  document.documentElement.className = sessionStorage.getItem(THEME) ?? "";
}

function leave() {
  authorize("");
  location.reload();
}

/** Ask who is there until the node knows; meanwhile nothing else is shown. */
async function start() {
  try {
    session.me = await get("/v1/whoami");
  } catch (error) {
    if (error.status === 401) return signIn(isAuthorized() ? error.message : "");
    put(main, h("h1", {}, "The console cannot begin"), h("p", { role: "alert" }, error.message));
    return setTimeout(start, 1500);
  }
  if (!session.me.cluster_id) {
    put(main, h("h1", {}, `Node ${session.me.node_id} is starting`), h("p", {}, "It has no metadata from a controller yet."));
    return setTimeout(start, 1000);
  }
  asking = false;
  frame();
  show();
}

function signIn(failure) {
  if (asking) return;
  asking = true;
  open.abort();
  const secret = h("input", { name: "secret", type: "password", autocomplete: "current-password", required: true });
  const user = h("input", { name: "user", autocomplete: "username", spellcheck: "false" });
  const named = field("User", user);
  const way = select([["token", "Token"], ["user", "User and password"]], { name: "way", value: "token", onchange: look });
  const label = field("Token", secret);
  function look() {
    named.hidden = way.value === "token";
    label.firstChild.textContent = way.value === "token" ? "Token" : "Password";
  }
  async function send(event) {
    event.preventDefault();
    authorize(way.value === "token" ? `Bearer ${secret.value}` : basic(user.value, secret.value));
    asking = false;
    start();
  }
  put(main, h("form", { class: "card sign-in", onsubmit: send }, h("h1", {}, "Sign in"),
    h("p", {}, "With a token of this cluster, or as a user of its Kafka listeners. It is kept until this tab closes."),
    field("With", way), named, label, h("p", { class: "failure", role: "alert" }, failure),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Sign in"))));
  if (isAuthorized()) authorize("");
  look();
  way.focus();
}

function help() {
  ask("Keys", h("dl", { class: "keys" }, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])));
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input,textarea,select");
  if (event.key === "Escape" && typing && !event.target.closest("dialog")) return event.target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "/") {
    const search = document.querySelector("[data-search]");
    if (!search) return;
    event.preventDefault();
    if (!search.offsetParent) document.querySelector(".fold").click();
    search.focus();
    search.select();
  } else if (event.key === "?") help();
  else if (/^[1-9]$/.test(event.key)) document.querySelectorAll("#nav a")[event.key - 1]?.click();
  else if (event.key === "ArrowDown" && document.activeElement === document.body) document.querySelector(".list")?.focus();
});

events.addEventListener("sign-in", () => session.me && signIn("Sign in again."));
events.addEventListener("connection", () => {
  const shown = document.getElementById("connection");
  if (session.lostAt) put(shown, h("span", {}, `The node has not answered since ${clock(session.lostAt)}. This page may be out of date; it keeps retrying.`));
  else put(shown);
  document.body.classList.toggle("lost", session.lostAt > 0);
});
useTheme();
addEventListener("hashchange", () => session.me && !asking && show());
start();
