// The public HTTP API, as any other caller has it: who asks, what failed, and whether the node is there.

import { quoted } from "./format.js";

const KEY = "raftlog.authorization";
const LEAST_REST_MS = 100;
const MOST_REST_MS = 700;
const RETRY_MS = 1000;
const SILENT_MS = 15_000;
const ASK_AWAY_MS = 1000;

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Whether the same request may soon have an answer. */
export const isTemporary = (error) => error.status === 0 || error.status >= 500;

/** What the console knows of its caller; see GET /v1/whoami. */
export const session = { me: null, lostAt: 0 };

/** Events: "connection" when the node is lost or back, "sign-in" when it requires authentication. */
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
  let answer, text;
  try {
    answer = await send(method, path, signal, body === undefined ? {} : { "Content-Type": "application/json" }, body === undefined || typeof body === "string" ? body : JSON.stringify(body));
    text = await answer.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    lost();
    throw new Failure(0, "The node does not answer.");
  }
  found();
  if (answer.ok) return text ? JSON.parse(text) : null;
  throw refusal(answer.status, text, `${method} ${path}`);
}

let askedAway = 0;

/** Send a request. While the node is away, it is asked once a second: the browser logs each try. Rejects as fetch does. */
async function send(method, path, signal, more, body) {
  if (session.lostAt && method === "GET") {
    if (Date.now() - askedAway < ASK_AWAY_MS) throw new Error("The node was asked just now.");
    askedAway = Date.now();
  }
  const headers = { "X-Requested-With": "XMLHttpRequest", ...more };
  const authorization = sessionStorage.getItem(KEY);
  if (authorization) headers.Authorization = authorization;
  return fetch(path, { method, headers, body, signal, cache: "no-store" });
}

function refusal(status, text, what) {
  if (status === 401) tell("sign-in");
  return new Failure(status, message(text) ?? `${what}: ${status}`);
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

/** Do some work again and again until `signal`; a failure goes to `failed`, and the work is tried again soon. */
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

const pause = (ms, signal) => new Promise((done) => {
  const end = () => (clearTimeout(timer), signal.removeEventListener("abort", end), done());
  const timer = setTimeout(end, ms);
  signal.addEventListener("abort", end);
});

/** Yield the events of a stream as they come; `alive` is called with each piece. */
async function* parsed(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const event = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      if (event.event) yield event;
    }
  }
}

/**
 * Follow GET /v1/events until `signal`, by fetch, since an EventSource cannot say who asks. After an interruption it
 * goes on where it was. A hidden page follows nothing. `heard` gets names and data; a refusal goes to `refused`.
 */
async function follow(query, signal, heard, refused) {
  let last = "";
  while (!signal.aborted) {
    const reading = new AbortController();
    const stop = () => reading.abort();
    const until = { signal: reading.signal };
    let silence;
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(stop, SILENT_MS);
    };
    signal.addEventListener("abort", stop, until);
    document.addEventListener("visibilitychange", stop, until);
    try {
      if (document.hidden) await pause(2 ** 31 - 1, reading.signal);
      else {
        alive();
        const answer = await send("GET", `/v1/events${query}`, reading.signal, last ? { "Last-Event-ID": last } : {});
        if (!answer.ok) throw refusal(answer.status, await answer.text(), "GET /v1/events");
        found();
        for await (const { event, id, data } of parsed(answer.body, alive)) {
          last = id ?? last;
          if (event !== "end") heard(event, JSON.parse(data));
        }
        await pause(RETRY_MS, signal);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Failure) refused(error);
      else if (!document.hidden) lost();
      if (!document.hidden) await pause(RETRY_MS, signal);
    } finally {
      clearTimeout(silence);
      stop();
    }
  }
}

/** Call `each` with every page of a list that names its next page, and rest four times as long as a page took. */
export async function pages(where, query, signal, each) {
  for (let after = ""; after !== null && !signal.aborted; ) {
    const began = performance.now();
    const page = await get(`${where}?${new URLSearchParams({ ...query, after })}`, signal);
    each(page);
    after = page.next;
    if (after !== null) await pause(4 * (performance.now() - began), signal);
  }
}

/**
 * Call `changed` at once, and whenever the cluster's metadata changes, within about a tenth of a second; but while
 * changes go on, rest four times as long as the last call took: the node has other things to do. With `sampled`, call
 * that with each sample of the node. Where events are refused, look every second.
 */
export function onMetadata(signal, changed, failed, sampled) {
  let wanted = 0;
  let seen = 0;
  let looking = false;
  async function look() {
    wanted++;
    if (looking) return;
    looking = true;
    while (seen !== wanted && !signal.aborted) {
      const began = performance.now();
      const wish = wanted;
      let rest = RETRY_MS;
      try {
        await changed();
        seen = wish;
        rest = Math.max(LEAST_REST_MS, Math.min(MOST_REST_MS, 4 * (performance.now() - began)));
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === undefined) console.error(error);
        failed(error);
      }
      await pause(rest, signal);
    }
    looking = false;
  }
  follow(sampled ? "?samples=true" : "", signal, (name, data) => (name === "metadata" ? look() : sampled?.(data)), look);
}

/** Send a request whose answer is no JSON document, and return the response. Throws Failure. */
async function opened(where, signal) {
  let answer;
  try {
    answer = await send("GET", where, signal);
  } catch (error) {
    if (signal?.aborted) throw error;
    lost();
    throw new Failure(0, "The node does not answer.");
  }
  found();
  if (!answer.ok) throw refusal(answer.status, await answer.text(), `GET ${where}`);
  return answer;
}

/** Return the bytes of an answer. */
export const blob = async (where, signal) => (await opened(where, signal)).blob();

/** Yield the events of a stream of JSON Lines, as lists, as they come. Throws Failure if it breaks off. */
export async function* eventLines(where, signal) {
  const reader = (await opened(where, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "", last;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (text + value).split("\n");
    text = lines.pop();
    const events_ = lines.map((each) => JSON.parse(each));
    last = events_.at(-1)?.event ?? last;
    yield events_;
  }
  if (last !== "end") throw new Failure(0, "The answer broke off.");
}
