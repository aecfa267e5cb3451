// The public HTTP API, as any other caller has it: who asks, what failed, and whether the node is there.

import { quoted } from "./format.js";

const KEY = "raftlog.authorization";
const LEAST_REST_MS = 100;
const MOST_REST_MS = 700;

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** What the console knows of its caller; see GET /v1/whoami. */
export const session = { me: null, lostAt: 0 };

/** Events: "connection" when the node is lost or back, "sign-in" when it wants to know who asks. */
export const events = new EventTarget();

const tell = (name) => events.dispatchEvent(new Event(name));

/** Remember who asks, for this tab only; "" forgets. */
export function authorize(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

export const isAuthorized = () => sessionStorage.getItem(KEY) !== null;

/** Return the options with which curl signs in as the caller; the secret itself is left to the caller's shell. */
export function curlAuthorization() {
  const given = sessionStorage.getItem(KEY) ?? "";
  if (given.startsWith("Bearer ")) return '-H "Authorization: Bearer $RAFTLOG_TOKEN" ';
  return given ? `-u ${quoted(session.me.name.replace(/^User:/, ""))} ` : "";
}

/** Return the header for a user and password, whose characters may be any. */
export function basic(user, password) {
  const bytes = new TextEncoder().encode(`${user}:${password}`);
  return `Basic ${btoa(String.fromCharCode(...bytes))}`;
}

/** Ask, and return the JSON of the answer. Throws Failure; status 0: the node is not there. */
export async function ask(method, path, body, signal) {
  const headers = { "X-Requested-With": "XMLHttpRequest" };
  const authorization = sessionStorage.getItem(KEY);
  if (authorization) headers.Authorization = authorization;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer, text;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body), signal, cache: "no-store" });
    text = await answer.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    lost();
    throw new Failure(0, "The node does not answer.");
  }
  found();
  if (answer.ok) return text ? JSON.parse(text) : null;
  if (answer.status === 401) tell("sign-in");
  throw new Failure(answer.status, message(text) ?? `${method} ${path}: ${answer.status}`);
}

function message(text) {
  try {
    return JSON.parse(text).message;
  } catch {
    return undefined;
  }
}

export const get = (path, signal) => ask("GET", path, undefined, signal);
export const post = (path, body) => ask("POST", path, body);

/** Return the path of a resource of this cluster below /v3; the parts are names as they are. */
export const v3 = (...parts) => path("v3", "clusters", session.me.cluster_id, ...parts);

export const path = (...parts) => `/${parts.map((each) => encodeURIComponent(each)).join("/")}`;

function lost() {
  if (session.lostAt) return;
  session.lostAt = Date.now();
  tell("connection");
}

function found() {
  if (!session.lostAt) return;
  session.lostAt = 0;
  tell("connection");
}

/** Whether the caller may do something: "topic" and "group" of what `rights` was asked about. */
export const may = (operation, rights = session.me, kind = "cluster") => rights.changes && (rights[kind] ?? []).includes(operation);

/** Return what the caller may do with a topic or a group. */
export const rights = (of, signal) => get(`/v1/whoami?${new URLSearchParams(of)}`, signal);

/** Do some work again and again until `signal`; a failure is told to `failed`, and tried again soon. */
export function every(ms, signal, work, failed = () => {}, { atOnce = true } = {}) {
  let timer;
  const turn = async () => {
    clearTimeout(timer);
    let wait = ms;
    try {
      if (!document.hidden) await work();
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === undefined) console.error(error);
      failed(error);
      wait = Math.max(1000, Math.min(ms, 5000));
    }
    if (!signal.aborted) timer = setTimeout(turn, wait);
  };
  const seen = () => document.hidden || turn();
  document.addEventListener("visibilitychange", seen, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  if (atOnce) turn();
  else timer = setTimeout(turn, ms);
}

/**
 * Call `changed` at once, and whenever the cluster's metadata changes, within about a tenth of a second; but while
 * changes go on, rest four times as long as the last call took: the node has other things to do.
 */
export function onMetadata(signal, changed, failed) {
  let seen = -1;
  every(0, signal, async () => {
    const { metadata_offset: offset } = await get(`/v1/metadata?after=${seen}&timeout_ms=${seen < 0 ? 0 : 15000}`, signal);
    if (offset === seen) return;
    const began = performance.now();
    await changed();
    seen = offset;
    await new Promise((done) => setTimeout(done, Math.max(LEAST_REST_MS, Math.min(MOST_REST_MS, 4 * (performance.now() - began)))));
  }, failed);
}
