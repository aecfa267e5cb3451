// Who may do what: users with passwords, ACLs, and quotas of clients.

import { ask as call, every, get, may, path, post, session, v3 } from "./api.js";
import { ask, changes, confirmTyped, failedIn, field, h, link, note, put, select, table, tabs } from "./dom.js";
import { bytes, number, plural } from "./format.js";

const TABS = [["", "Users", users], ["acls", "ACLs", acls], ["quotas", "Quotas", quotas]];
const EVERY_MS = 5000;
const MOST = 1000;
const TYPES = ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"];
const OPERATIONS = ["ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"];
const FIELDS = ["resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission"];
const KEYS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];
const KINDS = { user: "user", "client-id": "client id", ip: "address" };

export function access(root, [tab = "", word = ""], signal) {
  const found = TABS.find(([each]) => each === tab) ?? TABS[0];
  const body = h("div", { class: "tab" });
  put(root, h("h1", {}, "Access"), tabs("Views of access", ["access"], TABS, found[0]), body);
  found[2](body, signal, word);
}

/** Show what `load` returns, again and again; a refusal is shown in its place. Return what loads at once. */
function watch(host, signal, load, draw) {
  const show = changes(draw);
  const look = async () => show(await load());
  every(EVERY_MS, signal, look, failedIn(host));
  return () => look().catch(() => {});
}

const searchField = (what, draw) => h("input", { type: "search", placeholder: `Search ${what}  ( / )`, "aria-label": `Search ${what}`, "data-search": true, oninput: draw, spellcheck: "false" });
const add = (text, onclick, right = "ALTER") => may(right) && h("button", { type: "button", class: "primary", onclick }, text);
const act = (text, onclick) => h("button", { type: "button", class: "danger", onclick }, text);

// --- users

function users(root, signal) {
  let all = [];
  const host = h("div"), search = searchField("users", draw);
  put(root, h("div", { class: "bar" }, search, add("Set a password", setPassword)), host,
    h("p", { class: "quiet" }, "Users of SCRAM. Users of PLAIN are in the settings of listeners, and users of certificates and tokens have no entry here."));

  function draw() {
    const word = search.value.toLowerCase();
    put(host, table("Users", [
      ["User", (each) => each.name, "names"],
      ["Principal", (each) => link(["access", "acls"], each.principal), "wide names"],
      ["Credentials", (each) => each.credentials.map((one) => h("div", {}, `${one.mechanism} (${number(one.iterations)} iterations)`)), "names"],
      ...(may("ALTER") ? [["", (each) => each.credentials.map((one) => act(`Remove ${one.mechanism}`, () => remove(each.name, one.mechanism))), "act stack"]] : []),
    ], all.filter((each) => each.name.toLowerCase().includes(word)).slice(0, MOST), "No SCRAM users."));
  }

  const at = (name, mechanism) => path("v1", "users", name, "credentials", mechanism);

  function setPassword() {
    ask("Set a password", [
      field("User", h("input", { name: "user", required: true, spellcheck: "false", autocomplete: "off" }), "a new user, or one whose password changes"),
      field("Mechanism", select(["SCRAM-SHA-256", "SCRAM-SHA-512"], { name: "mechanism" })),
      field("Password", h("input", { name: "password", type: "password", required: true, autocomplete: "new-password" })),
    ], { button: "Set", ready: (given) => given.user !== "" && given.password !== "", send: async ({ user, mechanism, password }) => {
      await call("PUT", at(user, mechanism), { password });
      note(`${user} has a password for ${mechanism}.`);
      look();
    } });
  }

  function remove(name, mechanism) {
    confirmTyped("Remove the password", name, `${name} can no longer log in by ${mechanism}. Open sessions continue.`, async () => {
      await call("DELETE", at(name, mechanism));
      note(`${name} has no password for ${mechanism}.`);
      look();
    });
  }

  const look = watch(host, signal, async () => (await get("/v1/users", signal)).data, (found) => ((all = found), draw()));
}

// --- ACLs

function acls(root, signal, word = "") {
  if (!session.me.authorizer_enabled) return put(root, h("p", { class: "empty" }, "No authorizer is configured, so every client may do everything. ACLs need authorizer.class.name in the settings of all nodes."));
  let all = [], more = false;
  const host = h("div"), search = searchField("ACLs", draw);
  search.value = word;
  put(root, h("div", { class: "bar" }, search, add("Add an ACL", create)), host);

  function draw() {
    const word = search.value.toLowerCase();
    const shown = all.filter((each) => FIELDS.some((name) => each[name].toLowerCase().includes(word)));
    put(host, table("ACLs", [
      ["Principal", (each) => each.principal, "names"],
      ["Permission", (each) => (each.permission === "DENY" ? h("b", { class: "bad" }, "deny") : "allow")],
      ["Operation", (each) => each.operation, "names"],
      ["Resource", (each) => [`${each.resource_type.toLowerCase().replaceAll("_", " ")} `, h("b", {}, each.resource_name), each.pattern_type === "PREFIXED" && "…"], "names"],
      ["Host", (each) => each.host, "wide"],
      ...(may("ALTER") ? [["", (each) => act("Delete", () => remove(each)), "act"]] : []),
    ], shown.slice(0, MOST), "No ACLs."),
    h("p", { class: "quiet" }, `${plural(shown.length, "ACL")}${more ? `; the first ${number(MOST)} were read` : ""}. Name… stands for all names that begin so.`));
  }

  function create() {
    ask("Add an ACL", [
      h("div", { class: "pair" }, field("Principal", h("input", { name: "principal", required: true, spellcheck: "false", placeholder: "User:alice" })), field("Host", h("input", { name: "host", value: "*", required: true }))),
      h("div", { class: "pair" }, field("Permission", select([["ALLOW", "allow"], ["DENY", "deny"]], { name: "permission" })), field("Operation", select(OPERATIONS, { name: "operation", value: "READ" }))),
      h("div", { class: "pair" }, field("Resource type", select(TYPES, { name: "resource_type" })), field("Names", select([["LITERAL", "this name"], ["PREFIXED", "names that begin so"]], { name: "pattern_type" }))),
      field("Resource name", h("input", { name: "resource_name", required: true, spellcheck: "false" }), "* is every name; of the cluster it is kafka-cluster"),
    ], { button: "Add", ready: (given) => given.principal !== "" && given.resource_name !== "", send: async (given) => {
      await post(v3("acls"), given);
      note("The ACL is in force.");
      look();
    } });
  }

  function remove(each) {
    const words = `${each.permission.toLowerCase()} ${each.principal} ${each.operation} of ${each.resource_type} ${each.resource_name} from ${each.host}`;
    ask("Delete the ACL", h("p", {}, words), { button: "Delete", danger: true, send: async () => {
      await call("DELETE", `${v3("acls")}?${new URLSearchParams(Object.fromEntries(FIELDS.map((name) => [name, each[name]])))}`);
      note("The ACL is deleted.");
      look();
    } });
  }

  const look = watch(host, signal, async () => get(`${v3("acls")}?page_size=${MOST}`, signal), (found) => ((all = found.data), (more = Boolean(found.metadata.next)), draw()));
}

// --- quotas

function quotas(root, signal) {
  const host = h("div");
  put(root, h("div", { class: "bar" }, add("Set a quota", create, "ALTER_CONFIGS")), host,
    h("p", { class: "quiet" }, "A client gets the quota of its user and client id together, else of its user, else of its client id, else a default."));
  const order = Object.keys(KINDS);
  const words = (entity) => [...entity].sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind)).map((each) => `${KINDS[each.kind] ?? each.kind} ${each.name ?? "(default)"}`).join(", ");
  const amount = (key, value) => (key.endsWith("byte_rate") ? `${bytes(value)}/s` : key === "request_percentage" ? `${number(value)} %` : `${number(value)}/s`);

  function create() {
    ask("Set a quota", [
      h("div", { class: "pair" }, field("User", h("input", { name: "user", spellcheck: "false" })), field("Client id", h("input", { name: "client-id", spellcheck: "false" })), field("Address", h("input", { name: "ip", spellcheck: "false" }))),
      h("p", { class: "quiet" }, "A user, a client id, both together, or an address. * is the default of its kind."),
      h("div", { class: "pair" }, field("Quota", select(KEYS, { name: "key" })), field("Value", h("input", { name: "value", type: "number", min: 0, step: "any", required: true }), "bytes or changes a second, or percent")),
    ], { button: "Set", ready: (given) => given.value !== "" && Object.keys(KINDS).some((kind) => given[kind] !== ""), send: async (given) => {
      const entity = Object.keys(KINDS).filter((kind) => given[kind] !== "").map((kind) => ({ kind, name: given[kind] === "*" ? null : given[kind] }));
      await post("/v1/client-quotas", { entity, values: { [given.key]: Number(given.value) } });
      note("The quota is in force.");
      look();
    } });
  }

  function remove({ entity, values }) {
    ask("Remove the quotas", h("p", {}, `Of ${words(entity)}: ${Object.keys(values).join(", ")}.`), { button: "Remove", danger: true, send: async () => {
      await post("/v1/client-quotas", { entity, values: Object.fromEntries(Object.keys(values).map((key) => [key, null])) });
      note("The quotas are removed.");
      look();
    } });
  }

  const look = watch(host, signal, async () => (await get("/v1/client-quotas", signal)).data, (found) => put(host, table("Quotas", [
    ["Of", (each) => words(each.entity), "names"],
    ["Quotas", (each) => Object.entries(each.values).map(([key, value]) => h("div", {}, `${key} `, h("b", {}, amount(key, value)))), "names"],
    ...(may("ALTER_CONFIGS") ? [["", (each) => act("Remove", () => remove(each)), "act"]] : []),
  ], found.slice(0, MOST), "No quotas.")));
}
